"""Which hidden tests hold, and what that is worth. Expected values are compared here and go nowhere else.

A wrong function can hold many tests by luck: always True, or the argument as it came. So a function that does not hold
all of them earns at most PARTIAL, and only for what is beyond the best such guess.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-9
PARTIAL = 0.2
"""What holding nearly all tests is worth."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call, and what it must return."""

    args: tuple[Any, ...]
    expected: Any


def same(value: Any, expected: Any) -> bool:
    """Whether plain data is equal: floats nearly, lists and tuples alike, a bool only to a bool."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return _same_number(value, expected)
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same(value[key], expected[key]) for key in expected)
    return type(value) is type(expected) and bool(value == expected)


def _same_number(value: float, expected: float) -> bool:
    if value == expected or (value != value and expected != expected):
        return True
    if isinstance(value, int) and isinstance(expected, int):
        return False
    try:
        return math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:
        return False


def written(value: Any, most: int = 200) -> str:
    """Plain data for people, cut; whole numbers of thousands of digits are not written out."""
    try:
        text = repr(value)
    except ValueError:
        return "a number that is too long to show"
    return text if len(text) <= most else f"{text[:most]}…"


def chance(cases: Sequence[Case]) -> float:
    """The share of cases that the best constant, or the best of the arguments as it came, holds."""
    if not cases:
        return 0.0
    constants = (sum(same(each.expected, guess.expected) for each in cases) for guess in cases)
    places = range(max(len(each.args) for each in cases))
    copies = (
        sum(len(each.args) > place and same(each.args[place], each.expected) for each in cases) for place in places
    )
    return max((*constants, *copies)) / len(cases)


def worth(held: int, total: int, luck: float = 0.0) -> float:
    """1 when all tests held, else less than PARTIAL; `luck` is the share of them that earns nothing."""
    if total > 0 and held == total:
        return 1.0
    share = held / total if total else 0.0
    return PARTIAL * max(0.0, (share - luck) / (1 - luck)) if luck < 1 else 0.0


def cases_to_text(cases: Sequence[Case]) -> str:
    """Cases as JSON text, which every format of datasets keeps as it is."""
    return json.dumps([{"args": list(case.args), "expected": case.expected} for case in cases], ensure_ascii=False)


def read_cases(given: Any) -> list[Case]:
    """Cases from JSON text or from a list of `{"args", "expected"}`; ValueError for anything else."""
    found = json.loads(given) if isinstance(given, str) else given
    if not isinstance(found, list) or not all(map(_is_case, found)):
        raise ValueError("not a list of cases")
    return [Case(tuple(each["args"]), each.get("expected")) for each in found]


def _is_case(given: Any) -> bool:
    """Whether it has a list of arguments: the letters of a text, or the keys of an object, are none."""
    return isinstance(given, Mapping) and isinstance(given.get("args"), list | tuple)
