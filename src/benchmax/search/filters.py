"""Filters on metadata, as clients of corpora write them: `{"and": […]}`, `{"or": […]}`, `{"not": …}`, `{"field", "op",
"value"}`, or plainly `{name: value, …}` for values that must be equal. What is none of these is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from benchmax.errors import UsageError

Predicate: TypeAlias = Callable[[Mapping[str, Any]], bool]

DEPTH = 16
PARTS = 256
_MISSING = object()


def predicate(filters: Any) -> Predicate | None:
    """Whether metadata passes; None when everything does. UsageError says which part cannot be read."""
    return _Reader().read(filters, "filters", 0) if filters else None


class _Reader:
    def __init__(self) -> None:
        self._parts = 0

    def read(self, given: Any, where: str, depth: int) -> Predicate:
        self._parts += 1
        if depth > DEPTH or self._parts > PARTS:
            raise UsageError(f"filters is too large: {PARTS} parts, {DEPTH} deep at most. Ask for less at once.")
        if isinstance(given, list):
            return _all(self._several(given, where, depth))
        if not isinstance(given, dict) or not given:
            raise UsageError(
                f'{where} is not a filter. Write {{"field": …, "op": …, "value": …}}, "and", "or" or "not".'
            )
        if "field" in given and "op" in given:
            return _comparison(given, where)
        if "op" in given or "field" in given:
            lacks = "field" if "op" in given else "op"
            raise UsageError(f'{where} has no {lacks}. Write {{"field": …, "op": …, "value": …}}, or {{"and": […]}}.')
        return _all([self._entry(name, value, where, depth) for name, value in given.items()])

    def _entry(self, name: str, value: Any, where: str, depth: int) -> Predicate:
        place = f"{where}.{name}"
        if name == "not" and isinstance(value, dict):
            inner = self.read(value, place, depth + 1)
            return lambda metadata: not inner(metadata)
        if name in ("and", "or") and isinstance(value, list):
            parts = self._several(value, place, depth)
            return _all(parts) if name == "and" else lambda metadata: any(part(metadata) for part in parts)
        if name in ("and", "or", "not"):
            raise UsageError(f"{place} is no {'filter' if name == 'not' else 'list of filters'}. Put one there.")
        return _comparison({"field": name, "op": "eq", "value": value}, where)

    def _several(self, given: list[Any], where: str, depth: int) -> list[Predicate]:
        if not given:
            raise UsageError(f"{where} is empty. Put filters into it, or leave it out.")
        return [self.read(each, f"{where}[{index}]", depth + 1) for index, each in enumerate(given)]


def _all(parts: list[Predicate]) -> Predicate:
    return parts[0] if len(parts) == 1 else lambda metadata: all(part(metadata) for part in parts)


def _comparison(given: Mapping[str, Any], where: str) -> Predicate:
    name, op, wanted = given["field"], given["op"], given.get("value")
    if not isinstance(name, str):
        raise UsageError(f"{where}.field is not a name. Give the metadata's name as text.")
    compare = OPERATIONS.get(op) if isinstance(op, str) else None
    if compare is None:
        raise UsageError(f"{where}.op is {str(op)[:40]!r}. Use one of {', '.join(OPERATIONS)}.")
    if op in _LIST_OPERATIONS and not isinstance(wanted, list):
        raise UsageError(f"{where}.value must be a list for {op!r}. Put the values into one.")
    return lambda metadata: compare(metadata.get(name, _MISSING), wanted)


def _equal(value: Any, wanted: Any) -> bool:
    """JSON's equality: true is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _among(value: Any, wanted: list[Any]) -> bool:
    return any(_equal(each, other) for each in _values(value) for other in wanted)


def _values(value: Any) -> list[Any]:
    """A list's members, or the one value there is."""
    return value if isinstance(value, list) else [] if value is _MISSING else [value]


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers with numbers, texts with texts; nothing else has an order."""

    def both(value: Any, wanted: Any) -> bool:
        for kind in (str, (int, float)):
            if isinstance(value, kind) and isinstance(wanted, kind):
                return compare(value, wanted)
        return False

    return both


OPERATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda value, wanted: value is not _MISSING and _equal(value, wanted),
    "ne": lambda value, wanted: value is _MISSING or not _equal(value, wanted),
    "in": _among,
    "not_in": lambda value, wanted: not _among(value, wanted),
    "gt": _ordered(lambda value, wanted: value > wanted),
    "gte": _ordered(lambda value, wanted: value >= wanted),
    "lt": _ordered(lambda value, wanted: value < wanted),
    "lte": _ordered(lambda value, wanted: value <= wanted),
    "contains_any": _among,
    "contains_all": lambda value, wanted: all(_among(value, [each]) for each in wanted),
}
_LIST_OPERATIONS = frozenset({"in", "not_in", "contains_any", "contains_all"})
