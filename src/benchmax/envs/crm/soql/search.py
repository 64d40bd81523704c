"""SOSL: `FIND {words} IN ALL FIELDS RETURNING Object(fields WHERE … ORDER BY … LIMIT …), …`.

A record is found when the words stand in its searched fields, in any order and any of them: all words unless OR stands
between them, none after AND NOT, a "phrase" as it is. `*` stands for any letters, `?` for one. Capitals, a plural s and
small words such as "the" do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import TypeAlias

from benchmax import limits
from benchmax.envs.crm.org.base import QueryError
from benchmax.envs.crm.org.schema import NAME_FIELDS, OBJECTS, Field, Type
from benchmax.envs.crm.soql.parser import Parser, tokens
from benchmax.envs.crm.soql.syntax import Path, Select, Selected

_FIND = re.compile(r"\s*FIND\s*\{((?:[^{}\\]++|\\.)*+)\}", re.IGNORECASE | re.DOTALL)
_PIECE = re.compile(r'"((?:[^"\\]++|\\.)*+)"|([()])|((?:[^\s()"\\]++|\\.)++)', re.DOTALL)
_WORD = re.compile(r"[^\W_]+")
_STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "has", "have", "how", "i",
    "in", "is", "it", "its", "many", "may", "me", "my", "of", "on", "or", "our", "the", "their", "to", "was", "we",
    "what", "when", "where", "which", "who", "with", "you", "your",
})  # fmt: skip
_SCOPES: dict[str, Callable[[Field], bool]] = {
    "ALL": lambda field: field.type in (Type.TEXT, Type.LONG_TEXT, Type.EMAIL, Type.PHONE),
    "NAME": lambda field: field.name in NAME_FIELDS,
    "EMAIL": lambda field: field.type is Type.EMAIL,
    "PHONE": lambda field: field.type is Type.PHONE,
}

Words: TypeAlias = Sequence[str]
"""The words of one field of a record, as `words_of` returns them."""
Matcher: TypeAlias = Callable[[Sequence[Words]], bool]
"""Whether the fields of a record are what is searched."""


@dataclass(frozen=True, slots=True)
class Search:
    """A parsed search."""

    matches: Matcher
    scope: Callable[[Field], bool]
    """Which fields are searched."""
    returning: tuple[Select, ...]
    """The query that the records found of each object answer."""
    limit: int | None = None


def malformed_search(message: str) -> QueryError:
    return QueryError("MALFORMED_SEARCH", message)


def words_of(text: str) -> list[str]:
    """The words of a text, as they are compared."""
    return [_fold(word) for word in _WORD.findall(text.casefold())]


def _fold(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def parse_sosl(query: str) -> Search:
    """The search that a text means; QueryError when it means none."""
    match = _FIND.match(query)
    if match is None:
        raise malformed_search("a search begins with FIND {words}; braces inside of them are written \\{ and \\}")
    parser = _SearchParser(tokens(query, match.end()))
    scope, returning, limit = parser.scope(), parser.returning(), parser.limit()
    parser.end()
    return Search(_Expression(match[1]).matcher(), scope, returning, limit)


class _SearchParser(Parser):
    """What follows FIND {…}."""

    def scope(self) -> Callable[[Field], bool]:
        if not self.accept("IN"):
            return _SCOPES["ALL"]
        name = self.take().text.upper()
        if name not in _SCOPES:
            raise malformed_search(f"IN {name[:40]}: search IN {', '.join(_SCOPES)} FIELDS")
        self.expect("FIELDS")
        return _SCOPES[name]

    def returning(self) -> tuple[Select, ...]:
        if not self.accept("RETURNING"):
            return tuple(Select((Selected(Path(("Id",))),), name) for name in OBJECTS)
        return self.several(self._returned)

    def _returned(self) -> Select:
        name = self.name(any_word=True)
        if not self.accept("("):
            return Select((Selected(Path(("Id",))),), name)
        fields = self.several(self.selected)
        if not all(isinstance(each.expression, Path) and not each.alias for each in fields):
            raise malformed_search(f"RETURNING {name}(…) takes fields, without functions and names of their own")
        where, order_by, limit, offset = self.where(), self.order_by(), self.limit(), self.offset()
        self.expect(")")
        return Select(fields, name, where=where, order_by=order_by, limit=limit, offset=offset)


class _Expression:
    """The words between the braces: terms joined by AND, OR and AND NOT, OR binding least.

    What consists of small words alone has no matcher: it neither finds nor rules out anything.
    """

    def __init__(self, text: str) -> None:
        self._pieces = [(match[1], match[2] or match[3] or "") for match in _PIECE.finditer(text)]
        self._at = 0
        self._depth = 0

    def matcher(self) -> Matcher:
        if not self._pieces:
            raise malformed_search("there is nothing to search for")
        if len(self._pieces) == 1 and len("".join(words_of(self._pieces[0][1]))) == 1:
            raise malformed_search("search term must be longer than one character")
        found = self._either()
        if self._at < len(self._pieces):
            raise malformed_search(f"unexpected token: {self._pieces[self._at][1]!r}")
        return found or (lambda fields: True)

    def _next(self) -> str:
        """The next piece where it is an operator or a bracket; empty for a term, and at the end."""
        if self._at == len(self._pieces):
            return ""
        phrase, text = self._pieces[self._at]
        return text if phrase is None and text in ("AND", "OR", "NOT", "(", ")") else ""

    def _either(self) -> Matcher | None:
        parts = [self._all()]
        while self._next() == "OR":
            self._at += 1
            parts.append(self._all())
        return _joined(any, parts)

    def _all(self) -> Matcher | None:
        parts = [self._one()]
        while self._at < len(self._pieces) and self._next() not in ("OR", ")"):
            negated = False
            if self._next() == "AND":
                self._at += 1
                negated = self._next() == "NOT"
                self._at += negated
            part = self._one()
            parts.append(_not(part) if negated and part is not None else part)
        return _joined(all, parts)

    def _one(self) -> Matcher | None:
        sign = self._next()
        if sign == "(":
            return self._bracketed()
        if sign or self._at == len(self._pieces):
            raise malformed_search(f"unexpected token: {sign!r}" if sign else "unexpected end of the search")
        phrase, text = self._pieces[self._at]
        self._at += 1
        return _phrase(words_of(_unescaped(phrase))) if phrase is not None else _term(text)

    def _bracketed(self) -> Matcher | None:
        self._depth += 1
        if self._depth > limits.CRM_QUERY_DEPTH:
            raise malformed_search(f"brackets are nested deeper than {limits.CRM_QUERY_DEPTH} levels")
        self._at += 1
        inner = self._either()
        if self._next() != ")":
            raise malformed_search("a bracket is not closed")
        self._at += 1
        self._depth -= 1
        return inner


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _not(matches: Matcher) -> Matcher:
    return lambda fields: not matches(fields)


def _joined(how: Callable[[Iterable[bool]], bool], parts: Sequence[Matcher | None]) -> Matcher | None:
    found = [part for part in parts if part is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda fields: how(part(fields) for part in found)


def _term(text: str) -> Matcher | None:
    """One piece without spaces: a word, several with signs between them, or one with wildcards."""
    if re.search(r"(?<!\\)[*?]", text):
        return _wildcard(text)
    words = words_of(_unescaped(text))
    if len(words) == 1 and words[0] in _STOP_WORDS:
        return None
    return _phrase(words)


def _phrase(words: Words) -> Matcher:
    """Words that follow one another in a field; signs alone are no words, and find everything."""
    size = len(words)
    if size == 1:
        return lambda fields: any(words[0] in found for found in fields)
    return lambda fields: (
        not size
        or any(list(found[at : at + size]) == list(words) for found in fields for at in range(len(found) - size + 1))
    )


def _wildcard(text: str) -> Matcher:
    letters = re.sub(r"[^\w*?]|_", "", _unescaped(text).casefold())
    if not letters.strip("*?"):
        raise malformed_search("a wildcard needs letters beside it")
    pattern = re.compile(translate(letters))
    return lambda fields: any(pattern.match(word) for found in fields for word in found)
