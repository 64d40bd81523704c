"""A SOQL query → SQL for SQLite, with parameters.

Every name comes from the schema and every value is bound, so no query can say more than SOQL lets it. A condition is
true or false, never unknown: a field without a value equals nothing, differs from everything, and NOT turns that round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from benchmax import limits
from benchmax.envs.crm.org.base import QueryError, Row, malformed
from benchmax.envs.crm.org.schema import Field, SObject, Type, find_object
from benchmax.envs.crm.soql import syntax
from benchmax.envs.crm.soql.values import bound, pattern, span_of

AGGREGATES = frozenset({"COUNT", "COUNT_DISTINCT", "SUM", "AVG", "MIN", "MAX"})
_DATE_PARTS = {
    "CALENDAR_YEAR": "CAST(substr({0}, 1, 4) AS INTEGER)",
    "CALENDAR_QUARTER": "(CAST(substr({0}, 6, 2) AS INTEGER) + 2) / 3",
    "CALENDAR_MONTH": "CAST(substr({0}, 6, 2) AS INTEGER)",
    "DAY_IN_MONTH": "CAST(substr({0}, 9, 2) AS INTEGER)",
    "DAY_IN_WEEK": "CAST(strftime('%w', substr({0}, 1, 10)) AS INTEGER) + 1",
    "DAY_ONLY": "substr({0}, 1, 10)",
    "HOUR_IN_DAY": "CAST(substr({0}, 12, 2) AS INTEGER)",
}
_OF_TIMES = ("DAY_ONLY", "HOUR_IN_DAY")
_DATES = (Type.DATE, Type.DATETIME)


@dataclass(frozen=True, slots=True)
class Column:
    """An expression of a query in SQL, and what it holds."""

    sql: str
    type: Type
    path: tuple[str, ...]
    """Where its value stands in a row."""
    aggregated: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """SQL to run, what to bind, and how to read a row of its result."""

    sql: str
    parameters: tuple[Any, ...]
    columns: tuple[Column, ...]

    def row(self, values: tuple[Any, ...]) -> Row:
        """A result of SQLite as the API writes it, related records nested."""
        row: Row = {}
        for column, value in zip(self.columns, values, strict=True):
            place = row
            for part in column.path[:-1]:
                place = place.setdefault(part, {})
            place[column.path[-1]] = bool(value) if column.type is Type.BOOLEAN and value is not None else value
        return {name: None if _is_nobody(value) else value for name, value in row.items()}


def _is_nobody(value: Any) -> bool:
    """Whether it is a related record without any value: there is none."""
    return isinstance(value, dict) and all(each is None or _is_nobody(each) for each in value.values())


def compile_select(select: syntax.Select, today: date, within: Sequence[str] | None = None) -> Compiled:
    """The SQL of a query, of the records that have these Ids where some are given."""
    return _Compiler(select, today, "t").compiled(within)


class _Compiler:
    """Turns one query into SQL; a query inside of it has a compiler of its own, with other names for its tables."""

    def __init__(self, select: syntax.Select, today: date, prefix: str) -> None:
        self._select = select
        self._today = today
        self._prefix = prefix
        self._object = _object(select.object)
        self._joins: dict[tuple[str, ...], str] = {}
        self._join_sql: list[str] = []
        self._parameters: list[Any] = []
        self._queries = 0
        calls = (each.expression for each in select.fields if isinstance(each.expression, syntax.Call))
        self._grouped = bool(select.group_by) or any(call.function in AGGREGATES for call in calls)

    # The whole

    def compiled(self, within: Sequence[str] | None = None) -> Compiled:
        select = self._select
        counts = select.fields == (syntax.Selected(syntax.Call("COUNT")),)
        groups = [self._column(each) for each in select.group_by]
        columns = () if counts else self._columns(groups)
        where = self._where(within)
        having = self._having(groups)
        order = "" if counts else self._order([each.sql for each in groups])
        bounds = self._bounds(-1 if counts else limits.CRM_QUERY_ROWS + 1)
        chosen = "1" if counts else ", ".join(each.sql for each in columns)
        grouped = f" GROUP BY {', '.join(each.sql for each in groups)}" if groups else ""
        sql = f"SELECT {chosen} FROM {self._tables()}{where}{grouped}{having}{order}{bounds}"
        if counts:
            number = Column("", Type.NUMBER, ("expr0",))
            return Compiled(f"SELECT COUNT(*) FROM ({sql})", tuple(self._parameters), (number,))
        return Compiled(sql, tuple(self._parameters), columns)

    def _tables(self) -> str:
        return " ".join([f'"{self._object.name}" AS {self._prefix}0', *self._join_sql])

    def _columns(self, groups: list[Column]) -> tuple[Column, ...]:
        found: list[Column] = []
        unnamed = 0
        for each in self._select.fields:
            is_call = isinstance(each.expression, syntax.Call)
            if not self._grouped and (each.alias or is_call):
                raise malformed(f"unexpected token: {each.alias or each.expression}; it needs a query that groups")
            column = self._column(each.expression)
            self._check_grouped(column, groups, each.expression)
            name = each.alias or (f"expr{unnamed}" if is_call else column.path[-1] if self._grouped else "")
            unnamed += is_call and not each.alias
            path = (name,) if name else column.path
            if path in (one.path for one in found):
                raise QueryError("INVALID_FIELD", f"duplicate field selected: {'.'.join(path)}")
            found.append(Column(column.sql, column.type, path, column.aggregated))
        return tuple(found)

    def _check_grouped(self, column: Column, groups: list[Column], expression: syntax.Expression) -> None:
        if self._grouped and not column.aggregated and column.sql not in {each.sql for each in groups}:
            raise malformed(f"Field must be grouped or aggregated: {expression}")

    def _where(self, within: Sequence[str] | None) -> str:
        parts = []
        if within is not None:
            parts.append(f'{self._prefix}0."Id" IN ({", ".join("?" * len(within))})')
            self._parameters += within
        if self._select.where is not None:
            parts.append(self._condition(self._select.where))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _having(self, groups: list[Column]) -> str:
        if self._select.having is None:
            return ""
        if not groups:
            raise malformed("HAVING needs a GROUP BY")
        return f" HAVING {self._condition(self._select.having, groups)}"

    def _order(self, groups: list[str]) -> str:
        terms = [self._ordering(each, groups) for each in self._select.order_by]
        # What the query leaves open is settled here, so that the same query has the same answer.
        terms += groups if self._grouped else [f"{self._prefix}0.rowid"]
        return f" ORDER BY {', '.join(terms)}" if terms else ""

    def _ordering(self, ordering: syntax.Ordering, groups: list[str]) -> str:
        column = self._column(ordering.expression)
        if column.type is Type.LONG_TEXT:
            raise QueryError("INVALID_FIELD", f"field '{ordering.expression}' can not be sorted in a query call")
        if column.aggregated and not self._grouped:
            raise malformed(f"ORDER BY {ordering.expression} needs a GROUP BY")
        if self._grouped and not column.aggregated and column.sql not in groups:
            raise malformed(f"Ordered field must be grouped or aggregated: {ordering.expression}")
        direction, nulls = "DESC" if ordering.descending else "ASC", "LAST" if ordering.nulls_last else "FIRST"
        return f"{column.sql} {direction} NULLS {nulls}"

    def _bounds(self, most: int) -> str:
        """At most one row more than is allowed, so that too many are noticed; -1 is without end."""
        limit = self._select.limit
        limit = most if limit is None else limit if most < 0 else min(most, limit)
        self._parameters += [limit, self._select.offset]
        return " LIMIT ? OFFSET ?"

    # Fields

    def _column(self, expression: syntax.Expression) -> Column:
        if isinstance(expression, syntax.Path):
            return self._field(expression)
        if expression.function in AGGREGATES:
            return self._aggregate(expression)
        return self._date_part(expression)

    def _field(self, path: syntax.Path) -> Column:
        """The column of a path, joining the tables on the way to it."""
        current, table = self._object, f"{self._prefix}0"
        steps: tuple[str, ...] = ()
        parts = path.parts
        own = {self._select.object.lower(), self._select.alias.lower()} - {""}
        if len(parts) > 1 and parts[0].lower() in own:
            parts = parts[1:]
        for part in parts[:-1]:
            reference = _reference(current, part)
            steps = (*steps, reference.relationship)
            table = self._join(steps, table, reference)
            current = _object(reference.refers)
        found = current.field(parts[-1])
        if found is None:
            raise QueryError("INVALID_FIELD", f"No such column '{parts[-1]}' on entity '{current.name}'.")
        return Column(f'{table}."{found.name}"', found.type, (*steps, found.name))

    def _join(self, steps: tuple[str, ...], table: str, reference: Field) -> str:
        if steps not in self._joins:
            alias = self._joins[steps] = f"{self._prefix}{len(self._joins) + 1}"
            self._join_sql.append(
                f'LEFT JOIN "{reference.refers}" AS {alias} ON {alias}."Id" = {table}."{reference.name}"'
            )
        return self._joins[steps]

    def _aggregate(self, call: syntax.Call) -> Column:
        if call.argument is None:
            raise malformed(f"{call} needs a field, or to be all that is selected")
        column = self._field(call.argument)
        refused = {Type.LONG_TEXT, *([Type.BOOLEAN] if call.function in ("MIN", "MAX") else [])}
        if column.type in refused or (call.function in ("SUM", "AVG") and column.type is not Type.NUMBER):
            raise malformed(f"field {call.argument} does not support aggregate operator {call.function}")
        distinct, name = ("DISTINCT ", "COUNT") if call.function == "COUNT_DISTINCT" else ("", call.function)
        kept = column.type if name in ("MIN", "MAX") else Type.NUMBER
        return Column(f"{name}({distinct}{column.sql})", kept, ("expr0",), aggregated=True)

    def _date_part(self, call: syntax.Call) -> Column:
        if call.function not in _DATE_PARTS:
            raise malformed(f"unknown function: {call.function}")
        if call.argument is None:
            raise malformed(f"{call} needs a field")
        column = self._field(call.argument)
        if column.type not in _DATES or (call.function in _OF_TIMES and column.type is not Type.DATETIME):
            raise malformed(f"{call.function} does not work on the field {call.argument}")
        kind = Type.DATE if call.function == "DAY_ONLY" else Type.NUMBER
        return Column(_DATE_PARTS[call.function].format(column.sql), kind, ("expr0",))

    # Conditions

    def _condition(self, condition: syntax.Condition, groups: list[Column] | None = None) -> str:
        """A condition of HAVING when there are groups, else of WHERE."""
        match condition:
            case syntax.Not():
                return f"NOT ({self._condition(condition.condition, groups)})"
            case syntax.Combined():
                parts = [self._condition(each, groups) for each in condition.parts]
                return "(" + f" {condition.operator} ".join(parts) + ")"
        column = self._column(condition.left)
        if groups is not None:
            self._check_grouped(column, groups, condition.left)
        elif column.aggregated:
            raise malformed(f"{condition.left} belongs into HAVING, not into WHERE")
        if column.type is Type.LONG_TEXT:
            raise QueryError("INVALID_FIELD", f"field '{condition.left}' can not be filtered in a query call")
        if isinstance(condition, syntax.Comparison):
            return self._comparison(column, condition)
        return self._membership(column, condition)

    def _comparison(self, column: Column, condition: syntax.Comparison) -> str:
        operator, name = condition.operator, str(condition.left)
        if operator == "LIKE":
            self._parameters.append(pattern(condition.right, column.type, name))
            return rf"IFNULL({column.sql} LIKE ? ESCAPE '\', 0)"
        if condition.right.kind == "range":
            return self._in_span(column, condition)
        value = bound(condition.right, column.type, name)
        if value is None:
            if operator not in ("=", "!="):
                raise QueryError("INVALID_QUERY_FILTER_OPERATOR", f"{name} {operator} null: use = or !=")
            return f"{column.sql} IS {'NOT ' if operator == '!=' else ''}NULL"
        if column.type is Type.BOOLEAN and operator not in ("=", "!="):
            raise QueryError("INVALID_QUERY_FILTER_OPERATOR", f"invalid operator on boolean field: {name}")
        self._parameters.append(value)
        return f"NOT IFNULL({column.sql} = ?, 0)" if operator == "!=" else f"IFNULL({column.sql} {operator} ?, 0)"

    def _in_span(self, column: Column, condition: syntax.Comparison) -> str:
        """A date compared with many days: equal is inside, less is before the first, greater is after the last."""
        start, end = span_of(condition.right, column.type, str(condition.left), self._today)
        bounds = {"<": ("<", start), ">=": (">=", start), ">": (">=", end), "<=": ("<", end)}
        if condition.operator in bounds:
            operator, value = bounds[condition.operator]
            self._parameters.append(value)
            return f"IFNULL({column.sql} {operator} ?, 0)"
        self._parameters += [start, end]
        inside = f"IFNULL({column.sql} >= ? AND {column.sql} < ?, 0)"
        return inside if condition.operator == "=" else f"NOT {inside}"

    def _membership(self, column: Column, condition: syntax.Membership) -> str:
        name = str(condition.left)
        if isinstance(condition.within, syntax.Select):
            inside = f"IFNULL({column.sql} IN ({self._semi_join(column, name, condition.within)}), 0)"
        else:
            values = [bound(each, column.type, name) for each in condition.within]
            known = [value for value in values if value is not None]
            self._parameters += known
            inside = f"IFNULL({column.sql} IN ({', '.join('?' * len(known))}), 0)"
            if len(known) < len(values):
                inside = f"({inside} OR {column.sql} IS NULL)"
        return f"NOT {inside}" if condition.negated else inside

    def _semi_join(self, column: Column, name: str, select: syntax.Select) -> str:
        if column.type not in (Type.ID, Type.REFERENCE):
            raise malformed(f"semi join field is not allowed: {name} is no Id and no reference")
        if len(select.fields) != 1 or select.group_by or select.order_by or select.limit is not None or select.offset:
            raise malformed("a query inside of IN selects one field, and neither groups nor orders nor limits")
        self._queries += 1
        inner = _Compiler(select, self._today, f"{self._prefix}{self._queries}q")
        found = inner._one_column()
        self._parameters += inner._parameters
        return found

    def _one_column(self) -> str:
        """The SQL of a query inside of IN."""
        column = self._column(self._select.fields[0].expression)
        if column.type not in (Type.ID, Type.REFERENCE) or column.aggregated:
            raise malformed("a query inside of IN selects an Id or a reference")
        where = self._where(None)  # before the tables: it may join some
        return f"SELECT {column.sql} FROM {self._tables()}{where}"


def _object(name: str) -> SObject:
    found = find_object(name)
    if found is None:
        raise QueryError("INVALID_TYPE", f"sObject type '{name}' is not supported.")
    return found


def _reference(current: SObject, relationship: str) -> Field:
    found = current.reference(relationship)
    if found is None:
        raise QueryError(
            "INVALID_FIELD", f"Didn't understand relationship '{relationship}' in field path of '{current.name}'."
        )
    return found
