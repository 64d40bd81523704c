"""Text → tokens → a SOQL query, by recursive descent.

As in Salesforce, AND and OR may be mixed only with brackets: what they would mean without is not left to be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple, TypeVar

from benchmax import limits
from benchmax.envs.crm.org.base import QueryError, malformed
from benchmax.envs.crm.soql import syntax

_COMPARISONS = ("=", "!=", "<>", "<", "<=", ">", ">=")
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET")
_RESERVED = frozenset({*_CLAUSES, "AND", "OR", "NOT", "IN", "LIKE", "NULL", "TRUE", "FALSE", "ASC", "DESC", "NULLS"})
_UNCOVERED = frozenset({"FOR", "USING", "WITH", "ALL", "TYPEOF", "UPDATE"})
_WHOLE_NUMBERS = range(-(2**63), 2**63)
_NUMBER_CHARS = 40
_TOKEN = re.compile(
    r"""(?P<space>\s++)
    | (?P<datetime>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d))
    | (?P<date>\d{4}-\d\d-\d\d(?![\dT-]))
    | (?P<number>[+-]?\d++(?:\.\d++)?(?![\w.]))
    | (?P<word>[A-Za-z_]\w*+)
    | (?P<string>'(?:[^'\\]++|\\.)*+')
    | (?P<sign><=|>=|!=|<>|[=<>(),.:])""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
T = TypeVar("T")


class Token(NamedTuple):
    """A word of a query."""

    kind: str
    """`word`, `string`, `number`, `date`, `datetime`, `sign` or `end`."""
    text: str

    def is_one_of(self, *texts: str) -> bool:
        """Whether it is one of these words, whatever its capitals, or one of these signs."""
        return self.kind in ("word", "sign") and self.text.upper() in texts


def tokens(query: str, start: int = 0) -> list[Token]:
    """The words of a query from a place on, closed by an `end`."""
    if len(query) > limits.CRM_QUERY_CHARS:
        raise QueryError("QUERY_TOO_LONG", f"A query has at most {limits.CRM_QUERY_CHARS:,} characters.")
    found: list[Token] = []
    position = start
    while position < len(query):
        match = _TOKEN.match(query, position)
        if match is None:
            if query[position] == "'":
                raise malformed("unclosed string: a text in single quotes has no end")
            raise malformed(f"unexpected token: {query[position : position + 20]!r} at {position + 1}")
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match[0]))
        position = match.end()
    return [*found, Token("end", "")]


def parse_soql(query: str) -> syntax.Select:
    """The query that a text means; QueryError when it means none."""
    parser = Parser(tokens(query))
    select = parser.select()
    parser.end()
    return select


class Parser:
    """Reads tokens from left to right."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._depth = 0

    # The tokens

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    def take(self) -> Token:
        token = self.next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is this word or sign."""
        found = self.next.is_one_of(text)
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.unexpected(f"{text if text.isalpha() else repr(text)} is expected")

    def unexpected(self, hint: str = "") -> QueryError:
        token = self.next
        problem = "unexpected end of the query" if token.kind == "end" else f"unexpected token: {token.text[:40]!r}"
        if token.kind == "word" and token.text.upper() in _UNCOVERED:
            hint = f"{token.text.upper()} is not supported here"
        return malformed(f"{problem}; {hint}" if hint else problem)

    def end(self) -> None:
        if self.next.kind != "end":
            raise self.unexpected()

    def name(self, any_word: bool = False) -> str:
        """A name; one that is a word of the language too, such as Order, only where nothing else can stand."""
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        reserved = self.next.text.upper() in _RESERVED | _UNCOVERED and not following.is_one_of(".")
        if self.next.kind != "word" or (reserved and not any_word):
            raise self.unexpected("a name is expected")
        return self.take().text

    def whole_number(self) -> int:
        if self.next.kind != "number" or not self.next.text.isdecimal():
            raise self.unexpected("a whole number is expected")
        return int(_number(self.take().text))

    # A query

    def select(self) -> syntax.Select:
        self.expect("SELECT")
        fields = self.several(self.selected)
        self.expect("FROM")
        name, alias = self.name(any_word=True), self._alias()
        if self.next.is_one_of(","):
            raise malformed("unexpected token: ','; a query reads one object, and others by their relationships")
        where = self.where()
        group_by = self._by("GROUP", self.expression)
        having = self.condition() if self.accept("HAVING") else None
        order_by = self.order_by()
        limit, offset = self.limit(), self.offset()
        return syntax.Select(fields, name, alias, where, group_by, having, order_by, limit, offset)

    def several(self, read: Callable[[], T]) -> tuple[T, ...]:
        """What is read, and again after each comma."""
        found = [read()]
        while self.accept(","):
            found.append(read())
        return tuple(found)

    def selected(self) -> syntax.Selected:
        if self.next.is_one_of("("):
            raise malformed("a subquery in the field list is not supported here; query the other object by itself")
        return syntax.Selected(self.expression(), self._alias())

    def _alias(self) -> str:
        token = self.next
        return self.take().text if token.kind == "word" and token.text.upper() not in _RESERVED | _UNCOVERED else ""

    def expression(self) -> syntax.Expression:
        name = self.name()
        if not self.accept("("):
            return syntax.Path(self._path(name))
        argument = None if self.next.is_one_of(")") else syntax.Path(self._path(self.name()))
        self.expect(")")
        return syntax.Call(name.upper(), argument)

    def _path(self, first: str) -> tuple[str, ...]:
        parts = [first]
        while self.accept("."):
            parts.append(self.name())
        if len(parts) > limits.CRM_PATH_STEPS + 1:
            raise malformed(f"a path to a field has at most {limits.CRM_PATH_STEPS} relationships")
        return tuple(parts)

    def _by(self, word: str, read: Callable[[], T]) -> tuple[T, ...]:
        """What follows GROUP BY or ORDER BY."""
        if not self.accept(word):
            return ()
        self.expect("BY")
        return self.several(read)

    def order_by(self) -> tuple[syntax.Ordering, ...]:
        return self._by("ORDER", self._ordering)

    def _ordering(self) -> syntax.Ordering:
        expression = self.expression()
        descending = self.accept("DESC")
        if not descending:
            self.accept("ASC")
        nulls_last = False
        if self.accept("NULLS"):
            nulls_last = self.accept("LAST")
            if not nulls_last:
                self.expect("FIRST")
        return syntax.Ordering(expression, descending, nulls_last)

    def limit(self) -> int | None:
        return self.whole_number() if self.accept("LIMIT") else None

    def offset(self) -> int:
        return self.whole_number() if self.accept("OFFSET") else 0

    # Conditions

    def where(self) -> syntax.Condition | None:
        return self.condition() if self.accept("WHERE") else None

    def condition(self) -> syntax.Condition:
        parts = [self._one()]
        operator = self.next.text.upper() if self.next.is_one_of("AND", "OR") else ""
        while operator and self.accept(operator):
            parts.append(self._one())
        if self.next.is_one_of("AND", "OR"):
            raise self.unexpected("put brackets around what belongs together")
        return syntax.Combined(operator, tuple(parts)) if operator else parts[0]

    def _one(self) -> syntax.Condition:
        self._depth += 1
        if self._depth > limits.CRM_QUERY_DEPTH:
            raise malformed(f"conditions are nested deeper than {limits.CRM_QUERY_DEPTH} levels")
        try:
            if self.accept("NOT"):
                return syntax.Not(self._one())
            if self.accept("("):
                inner = self.condition()
                self.expect(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> syntax.Condition:
        left = self.expression()
        if self.next.is_one_of(*_COMPARISONS):
            operator = self.take().text
            return syntax.Comparison(left, "!=" if operator == "<>" else operator, self._literal())
        if self.accept("LIKE"):
            return syntax.Comparison(left, "LIKE", self._literal())
        if self.next.is_one_of("INCLUDES", "EXCLUDES"):
            raise QueryError("INVALID_QUERY_FILTER_OPERATOR", "INCLUDES and EXCLUDES need a multi-select picklist")
        negated = self.accept("NOT")
        if not self.accept("IN"):
            raise self.unexpected("an operator is expected")
        return syntax.Membership(left, self._within(), negated)

    def _within(self) -> tuple[syntax.Literal, ...] | syntax.Select:
        self.expect("(")
        within = self.select() if self.next.is_one_of("SELECT") else self.several(self._literal)
        self.expect(")")
        return within

    def _literal(self) -> syntax.Literal:
        token = self.next
        if token.kind == "word":
            return self._named_literal()
        if token.kind in ("sign", "end"):
            raise self.unexpected("a value is expected")
        self.take()
        return _read(token)

    def _named_literal(self) -> syntax.Literal:
        if self.next.is_one_of("NULL", "TRUE", "FALSE"):
            word = self.take().text.upper()
            return syntax.Literal("null", None) if word == "NULL" else syntax.Literal("boolean", word == "TRUE")
        if self.next.text.upper() in _RESERVED:
            raise self.unexpected("a value is expected")
        name = self.take().text.upper()
        return syntax.Literal("range", (name, self.whole_number() if self.accept(":") else None))


def _read(token: Token) -> syntax.Literal:
    if token.kind == "string":
        return syntax.Literal("string", token.text[1:-1])
    if token.kind == "number":
        return syntax.Literal("number", _number(token.text))
    try:
        if token.kind == "date":
            return syntax.Literal("date", date.fromisoformat(token.text))
        moment = datetime.fromisoformat(token.text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise malformed(f"{token.text!r} is no date") from None
    return syntax.Literal("datetime", moment)


def _number(text: str) -> int | float:
    if len(text) > _NUMBER_CHARS or ("." not in text and int(text) not in _WHOLE_NUMBERS):
        raise malformed(f"the number {text[:_NUMBER_CHARS]} is too large")
    return float(text) if "." in text else int(text)
