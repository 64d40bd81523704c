"""A generated task: a function that is asked for, what it must return, and a solution.

What is right is computed by a function of the generator, the solution is source text: each checks the other. Hidden
tests are drawn so that no constant, and no argument as it came, holds more than half of them.
"""

from __future__ import annotations

import copy
import json
import random
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmax.envs.code.scoring import Case, cases_to_text, chance

HIDDEN = 10
MOST_CHANCE = 0.5
_DRAWN = 28
"""Calls to choose the tests from."""
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Task:
    """A function to write."""

    name: str
    params: str
    asked: str
    """What it returns, to follow "that returns"."""
    body: str
    """The lines of the solution, less the first."""
    shown: tuple[Case, ...]
    hidden: tuple[Case, ...]

    @property
    def question(self) -> str:
        examples = "\n".join(f"{self.name}({_arguments(case)}) == {case.expected!r}" for case in self.shown)
        return f"Write {self.name}({self.params}) that returns {self.asked}.\n{examples}"

    @property
    def solution(self) -> str:
        return f"def {self.name}({self.params}):\n{textwrap.indent(textwrap.dedent(self.body).strip(), '    ')}"

    def as_row(self, level: str) -> dict[str, Any]:
        return {
            "prompt": self.question,
            "entry_point": self.name,
            "tests": cases_to_text(self.hidden),
            "examples": cases_to_text(self.shown),
            "solution": self.solution,
            "level": level,
        }


def _arguments(case: Case) -> str:
    return ", ".join(map(repr, case.args))


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task before its tests are drawn."""

    name: str
    params: str
    asked: str
    body: str
    right: Callable[..., Any]
    """Computes what is right."""
    args: Callable[[random.Random], Sequence[Any]]
    """Draws the arguments of a call."""
    edges: Sequence[Sequence[Any]] = ()
    """Arguments that are among the hidden tests."""
    shown: int = 2

    @property
    def key(self) -> str:
        """What is asked, whatever names and examples are: rows that are held out ask what no other row asks."""
        return re.sub(rf"\b(?:{'|'.join(self.params.split(', '))})\b", "_", self.asked)

    def task(self, draw: random.Random) -> Task | None:
        """The task with its tests; None when they could be guessed."""
        for _ in range(_TRIES):
            calls = _different([*self.edges, *(tuple(self.args(draw)) for _ in range(_DRAWN))])
            cases = [Case(call, self.right(*copy.deepcopy(call))) for call in calls]
            examples, tests = _chosen(draw, cases, self.shown, len(self.edges))
            if examples and len(tests) == HIDDEN and chance(tests) <= MOST_CHANCE:
                return Task(self.name, self.params, self.asked, self.body, tuple(examples), tuple(tests))
        return None


MakeTask: TypeAlias = Callable[[random.Random], TaskPlan]


def _different(calls: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return list({json.dumps(call): tuple(call) for call in calls}.values())


def _chosen(draw: random.Random, cases: list[Case], shown: int, edges: int) -> tuple[list[Case], list[Case]]:
    """Examples, and tests in which no result is too frequent, the edges among them."""
    counts: dict[str, int] = {}
    tests: list[Case] = []
    rest: list[Case] = []
    for case in cases:
        key = json.dumps(case.expected)
        counts[key] = counts.get(key, 0) + 1
        (tests if len(tests) < HIDDEN and counts[key] <= HIDDEN * MOST_CHANCE else rest).append(case)
    draw.shuffle(tests)
    return _examples([case for case in rest if case not in cases[:edges]], shown), tests


def _examples(cases: list[Case], shown: int) -> list[Case]:
    """The first ones with different results, then others."""
    firsts = list({json.dumps(case.expected): case for case in reversed(cases)}.values())[::-1]
    return [*firsts, *(case for case in cases if case not in firsts)][:shown]
