"""A generated task: a function that is asked for, what it must return, and a solution.

What is right is computed by a function of the generator, the solution is source text: each checks the other. Hidden
tests are drawn, and others are aimed at what the drawn ones do not tell: the solution with one thing wrong in it. No
constant, and no argument as it came, holds more than half of them.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmax.envs.code.levels.aimed import aimed_calls
from benchmax.envs.code.levels.mutants import FAILED, Mutants
from benchmax.envs.code.scoring import Case, cases_to_text, chance, same

HIDDEN = 10
MOST_HIDDEN = 16
"""As many as that where ten do not tell enough."""
_CALLS = 1_200
"""Calls of all mutants together, about, to find tests: each of many mutants gets fewer."""
_FIRST = 5
"""Tests that are drawn before any is aimed."""
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
        return _source(self.name, self.params, self.body)

    def as_row(self, level: str) -> dict[str, Any]:
        return {
            "prompt": self.question,
            "entry_point": self.name,
            "tests": cases_to_text(self.hidden),
            "examples": cases_to_text(self.shown),
            "solution": self.solution,
            "level": level,
        }


def _source(name: str, params: str, body: str) -> str:
    return f"def {name}({params}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}"


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
        mutants = Mutants(_source(self.name, self.params, self.body), self.name)
        for _ in range(_TRIES):
            calls = _different([*self.edges, *(tuple(self.args(draw)) for _ in range(_DRAWN))])
            chosen = _Chosen(self.right, mutants, calls, max(_FIRST, len(self.edges)))
            tests = chosen.tests
            drawn = [call for call in calls[len(self.edges) :] if call not in [test.args for test in tests]]
            examples = _examples([chosen.case(call) for call in drawn[:8]], self.shown)
            if examples and len(tests) >= HIDDEN and chance(tests) <= MOST_CHANCE:
                draw.shuffle(tests)
                return Task(self.name, self.params, self.asked, self.body, tuple(examples), tuple(tests))
        return None


MakeTask: TypeAlias = Callable[[random.Random], TaskPlan]


def _different(calls: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return list({json.dumps(call): tuple(call) for call in calls}.values())


class _Chosen:
    """Tests of a function: the first calls, some for what those do not tell, and others until there are enough."""

    def __init__(self, right: Callable[..., Any], mutants: Mutants, calls: list[tuple[Any, ...]], first: int) -> None:
        self._right, self._mutants = right, mutants
        self._counts: dict[str, int] = {}
        self.tests: list[Case] = []
        for call in calls[:first]:
            self._add(self.case(call))
        self._tell(calls, first)
        self._fill(calls[first:])

    def case(self, call: tuple[Any, ...]) -> Case:
        return Case(call, self._right(*copy.deepcopy(call)))

    def _tell(self, calls: list[tuple[Any, ...]], first: int) -> None:
        """Add what tells the mutants that the tests so far do not."""
        mutants = self._mutants
        left = [n for n in range(1, mutants.count + 1) if not self._told(n)]
        if not left:
            return
        both = itertools.zip_longest(calls[first:], aimed_calls(calls, mutants.constants))
        pool = [call for pair in both for call in pair if call is not None][: _CALLS // mutants.count]
        known: list[Any] = []
        for mutant in left:
            if len(self.tests) >= MOST_HIDDEN or self._told(mutant):
                continue
            for place, call in enumerate(pool):
                if place == len(known):
                    known.append(mutants.returned(0, call))
                if known[place] is not FAILED and mutants.told(mutant, call, known[place]) and self._agreed(call):
                    break

    def _told(self, mutant: int) -> bool:
        return any(self._mutants.told(mutant, test.args, test.expected) for test in self.tests)

    def _agreed(self, call: tuple[Any, ...]) -> bool:
        """Add a test, if what is right is what the solution returns."""
        try:
            case = self.case(call)
        except Exception:
            return False
        if not same(self._mutants.returned(0, call), case.expected):
            return False
        self._add(case)
        return True

    def _fill(self, calls: list[tuple[Any, ...]]) -> None:
        """Add calls until there are enough, and none of their results is too frequent."""
        taken = [test.args for test in self.tests]
        for case in (self.case(call) for call in calls if call not in taken):
            most = max(self._counts.values())
            if len(self.tests) >= max(HIDDEN, most / MOST_CHANCE):
                return
            if all(self._counts.get(key, 0) < HIDDEN * MOST_CHANCE for key in _guesses(case)):
                self._add(case)

    def _add(self, case: Case) -> None:
        self.tests.append(case)
        for key in _guesses(case):
            self._counts[key] = self._counts.get(key, 0) + 1


def _guesses(case: Case) -> list[str]:
    """What a guess of its result would be: a constant, or an argument as it came."""
    copies = [f"argument {place}" for place, value in enumerate(case.args) if value == case.expected]
    return [json.dumps(case.expected), *copies]


def _examples(cases: list[Case], shown: int) -> list[Case]:
    """The first ones with different results, then others."""
    firsts = list({json.dumps(case.expected): case for case in reversed(cases)}.values())[::-1]
    return [*firsts, *(case for case in cases if case not in firsts)][:shown]
