"""The words of a query: names, literals and signs."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmax import limits
from benchmax.envs.crm.org.base import QueryError

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


class Token(NamedTuple):
    """A word of a query."""

    kind: str
    """`word`, `string`, `number`, `date`, `datetime`, `sign` or `end`."""
    text: str

    def is_one_of(self, *texts: str) -> bool:
        """Whether it is one of these words, whatever its capitals, or one of these signs."""
        return self.kind in ("word", "sign") and self.text.upper() in texts


def malformed(message: str) -> QueryError:
    return QueryError("MALFORMED_QUERY", message)


def tokens(query: str, start: int = 0) -> list[Token]:
    """The words of a query from a place on, closed by an `end`."""
    if len(query) > limits.CRM_QUERY_CHARS:
        raise QueryError("QUERY_TOO_LONG", f"A query has at most {limits.CRM_QUERY_CHARS:,} characters.")
    found: list[Token] = []
    position = start
    while position < len(query):
        match = _TOKEN.match(query, position)
        if match is None:
            raise _unreadable(query, position)
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match[0]))
        position = match.end()
    return [*found, Token("end", "")]


def _unreadable(query: str, position: int) -> QueryError:
    if query[position] == "'":
        return malformed("unclosed string: a text in single quotes has no end")
    return malformed(f"unexpected token: {query[position : position + 20]!r} at {position + 1}")
