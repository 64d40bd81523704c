"""How long a text a regular expression may be tried on: Python cannot stop a match, and the model writes the text.

A match holds the interpreter lock, so no deadline in a thread ends it, and a process for every tool call is too dear.
Instead the length of the text is bounded by what the pattern may cost in the worst case.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

MOST_STEPS = 10_000_000
MOST_CHARS = 2_000
MOST_NESTED_CHARS = 20
MOST_CHOICES = 12


@lru_cache(maxsize=1024)
def longest_matchable(pattern: str) -> int:
    """The longest text this pattern is tried on, so that the match ends within a fraction of a second.

    -1 for a pattern that Python cannot read, which is tried on none: JSON schemas are written for those of JavaScript.
    """
    try:
        re.compile(pattern)
        parsed = list(_parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return -1
    shape = _Shape()
    shape.read(parsed, inside=False)
    if shape.nested > 1:
        return MOST_NESTED_CHARS // (shape.nested + 1)
    if shape.nested or shape.choices > MOST_CHOICES:
        return MOST_NESTED_CHARS
    anchored = bool(parsed) and parsed[0][0] is _constants.AT
    power = shape.repeats if anchored else shape.repeats + 1
    return min(MOST_CHARS, int(MOST_STEPS ** (1 / max(1, power))))


class _Shape:
    """What makes a pattern costly: long repeats multiply, choices double, and a choice in a repeat is exponential."""

    def __init__(self) -> None:
        self.repeats = self.choices = self.nested = 0

    def read(self, node: Any, inside: bool) -> None:
        """Count the parts of a parsed pattern; `inside` says whether they may repeat."""
        if isinstance(node, tuple) and len(node) == 2 and isinstance(node[0], _constants._NamedIntConstant):
            kind, node = node
            repeat = kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
            if kind is _constants.BRANCH or (repeat and node[0] != node[1]):
                self.nested += inside * (1 if repeat else len(node[1]) - 1)
                self.repeats += repeat and node[1] > 8
                self.choices += not repeat or node[1] <= 8
            inside |= repeat and node[1] > 1
        if isinstance(node, tuple | list | _parser.SubPattern):
            for part in node:
                self.read(part, inside)
