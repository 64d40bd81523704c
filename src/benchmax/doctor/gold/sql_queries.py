"""Finds a SQL query whose result contains the truth, for tools that take a statement.

Tables and columns are read from the prompt and the tool's description. Queries on the table show which value belongs
to which column; the final query then selects the other columns.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from benchmax.doctor.probe_answers import mentions
from benchmax.doctor.tool_arguments import properties_of
from benchmax.envs.types import ToolDefinition

_TABLE = re.compile(r"\b([A-Za-z_]\w*)\s*\(\s*([A-Za-z_]\w*(?:\s+\w+)?(?:\s*,\s*[A-Za-z_]\w*(?:\s+\w+)?)+)\s*\)")
_MENTIONS_SQL = re.compile(r"\bsql\b|\bselect\b|\bquery\b", re.IGNORECASE)
_NOTHING = re.compile(r"\W*(no rows|none|empty|null|0 rows)?\W*", re.IGNORECASE)
MOST_VALUES = 12
TOTALS = ("COUNT(*)", "SUM({})", "MAX({})", "MIN({})", "AVG({})")

Ask = Callable[[str], Awaitable[str | None]]
"""Runs a statement; returns None when it is refused."""


class TableShape(NamedTuple):
    name: str
    columns: list[str]


def statement_parameter(tool: ToolDefinition) -> str | None:
    """The one text parameter of a tool that takes SQL; None for any other tool."""
    properties = properties_of(tool)
    if len(properties) != 1 or not _MENTIONS_SQL.search(f"{tool.name} {tool.description} {' '.join(properties)}"):
        return None
    return next(iter(properties))


def tables(text: str) -> list[TableShape]:
    """The tables a text describes, as `name(column, column)`."""
    found = [TableShape(name, [part.split()[0] for part in inner.split(",")]) for name, inner in _TABLE.findall(text)]
    return list({shape.name: shape for shape in found}.values())


async def find_query(ask: Ask, shapes: Sequence[TableShape], values: Sequence[Any], truth: str) -> str | None:
    """The first statement whose result holds the truth."""
    for shape in shapes:
        pairs = await _pairs(ask, shape, [str(value) for value in values][:MOST_VALUES])
        for statement in _statements(shape, pairs):
            result = await ask(statement)
            if result is not None and mentions(result, truth):
                return statement
    return None


async def _pairs(ask: Ask, shape: TableShape, values: Sequence[str]) -> list[tuple[str, str]]:
    """Which of the values occur in which columns."""
    found = []
    for value in dict.fromkeys(values):
        for column in shape.columns:
            result = await ask(f"SELECT {column} FROM {shape.name} WHERE {_equals(column, value)} LIMIT 1")
            if result is not None and not _NOTHING.fullmatch(result):
                found.append((column, value))
    return found


def _statements(shape: TableShape, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """All queries with these values, those with most of them first."""
    for size in range(min(3, len(pairs)), -1, -1):
        for chosen in combinations(pairs, size):
            if len({column for column, _ in chosen}) < size:
                continue
            where = " AND ".join(_equals(*pair) for pair in chosen)
            rest = [column for column in shape.columns if column not in {column for column, _ in chosen}]
            for wanted in (*rest, TOTALS[0], *(total.format(column) for column in rest for total in TOTALS[1:])):
                yield f"SELECT {wanted} FROM {shape.name}" + (f" WHERE {where}" if where else "")


def _equals(column: str, value: str) -> str:
    quoted = value.replace("'", "''")
    return f"{column} = '{quoted}'"
