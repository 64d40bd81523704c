"""Operations that tasks are made of, as tables have them: in words, as an expression, and what it computes.

    Op("{v} plus {c}", "{v} + {c}", lambda v, k: v + k.c)

`{v}` is the name of what it works on; the other names are those of `Constants`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmax.envs.code.levels.inputs import LETTERS, WORDS


class Constants(NamedTuple):
    """Two numbers, and what else they stand for."""

    c: int
    d: int
    high: int
    few: int
    some: int
    letter: str
    word: str
    other: str
    sign: str

    @classmethod
    def of(cls, c: int, d: int = 0) -> Constants:
        letter, word, other = LETTERS[c % len(LETTERS)], WORDS[c % len(WORDS)], WORDS[d % len(WORDS)][0]
        return cls(c, d, c + d, c % 3 + 2, c % 4 + 3, letter, word, other, "-+/_. "[c % 6])


class Step(NamedTuple):
    """An operation on something that has a name, with its constants."""

    says: str
    code: str
    right: Callable[[Any], Any]


class Op(NamedTuple):
    """An operation."""

    says: str
    code: str
    right: Callable[[Any, Constants], Any]
    """Computed in another way than by `code`: each checks the other."""
    counts: bool = False
    """Whether its constant counts characters or items, of which there are few."""

    def step(self, name: str, constants: Constants) -> Step:
        filled = {"v": name, **constants._asdict()}
        return Step(self.says.format(**filled), self.code.format(**filled), lambda value: self.right(value, constants))
