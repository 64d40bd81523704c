"""A generated task: a function that is asked for, what it must return, and a solution.

What is right is computed by a function of the generator, the solution is source text: each checks the other. Some
hidden tests are drawn, others are aimed at mutants that the drawn ones do not expose: the solution with one thing wrong
in it. No constant, and no argument returned unchanged, passes more than half of them.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmax.envs.code.levels.boundary_calls import aimed_calls
from benchmax.envs.code.levels.inputs import DrawArgs
from benchmax.envs.code.levels.mutants import FAILED, Mutants
from benchmax.envs.code.reward import Case, cases_to_text, chance, same

HIDDEN = 10
MOST_HIDDEN = 16
"""Up to so many where ten do not expose enough mutants."""
_CALLS = 1_200
"""About how many calls all mutants get together while tests are sought; each of many mutants gets fewer."""
_FIRST = 5
"""Tests that are drawn before any is aimed at a mutant."""
MOST_CHANCE = 0.5
_DRAWN = 28
"""Calls to choose the tests from."""
_TRIES = 8


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A function to write, before its tests are drawn."""

    signature: str
    """Name and parameters of the function: `double(x)`."""
    asked: str
    """What it returns, to follow "that returns"."""
    body: str
    """The lines of the solution, less the first."""
    right: Callable[..., Any]
    """Computes what is right."""
    args: DrawArgs
    edges: Sequence[Sequence[Any]] = ()
    """Arguments that are among the hidden tests."""
    shown: int = 2

    @property
    def name(self) -> str:
        return self.signature.partition("(")[0]

    @property
    def solution(self) -> str:
        return f"def {self.signature}:\n{textwrap.indent(textwrap.dedent(self.body).strip(), '    ')}"

    @property
    def key(self) -> str:
        """What is asked, whatever names and examples are: rows that are held out ask what no other row asks."""
        params = self.signature.partition("(")[2].rstrip(")").split(", ")
        return re.sub(rf"\b(?:{'|'.join(params)})\b", "_", self.asked)

    def row(self, draw: random.Random) -> dict[str, Any] | None:
        """The task with its tests; None when they could be guessed."""
        mutants = Mutants(self.solution, self.name)
        for _ in range(_TRIES):
            drawn = [*self.edges, *(self.args(draw) for _ in range(_DRAWN))]
            calls = list({json.dumps(call): tuple(call) for call in drawn}.values())
            chosen = _Chosen(self.right, mutants, calls, max(_FIRST, len(self.edges)))
            tests = chosen.tests
            others = [call for call in calls[len(self.edges) :] if call not in [test.args for test in tests]]
            examples = _examples([chosen.case(call) for call in others[:8]], self.shown)
            if examples and len(tests) >= HIDDEN and chance(tests) <= MOST_CHANCE:
                draw.shuffle(tests)
                return self._row(examples, tests)
        return None

    def _row(self, examples: list[Case], tests: list[Case]) -> dict[str, Any]:
        shown = (f"{self.name}({', '.join(map(repr, case.args))}) == {case.expected!r}" for case in examples)
        return {
            "prompt": "\n".join([f"Write {self.signature} that returns {self.asked}.", *shown]),
            "entry_point": self.name,
            "tests": cases_to_text(tests),
            "examples": cases_to_text(examples),
            "solution": self.solution,
        }


MakeTask: TypeAlias = Callable[[random.Random], TaskPlan]


class _Chosen:
    """Tests of a function: the first calls, some that expose further mutants, and others until there are enough."""

    def __init__(self, right: Callable[..., Any], mutants: Mutants, calls: list[tuple[Any, ...]], first: int) -> None:
        self._right, self._mutants = right, mutants
        self._counts: Counter[str] = Counter()
        self.tests: list[Case] = []
        for call in calls[:first]:
            self._add(self.case(call))
        self._expose_mutants(calls, first)
        self._fill(calls[first:])

    def case(self, call: tuple[Any, ...]) -> Case:
        return Case(call, self._right(*copy.deepcopy(call)))

    def _expose_mutants(self, calls: list[tuple[Any, ...]], first: int) -> None:
        """Add tests that expose the mutants which the tests so far do not."""
        mutants = self._mutants
        left = [n for n in range(1, mutants.count + 1) if not self._is_exposed(n)]
        if not left:
            return
        both = itertools.zip_longest(calls[first:], aimed_calls(calls, mutants.constants))
        pool = [call for pair in both for call in pair if call is not None][: _CALLS // mutants.count]
        known: list[Any] = []
        for mutant in left:
            if len(self.tests) >= MOST_HIDDEN or self._is_exposed(mutant):
                continue
            for place, call in enumerate(pool):
                if place == len(known):
                    known.append(mutants.returned(0, call))
                if known[place] is not FAILED and mutants.exposes(mutant, call, known[place]) and self._added(call):
                    break

    def _is_exposed(self, mutant: int) -> bool:
        return any(self._mutants.exposes(mutant, test.args, test.expected) for test in self.tests)

    def _added(self, call: tuple[Any, ...]) -> bool:
        """Add a test if the solution returns the right result; whether it was added."""
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
            if all(self._counts[key] < HIDDEN * MOST_CHANCE for key in _guesses(case)):
                self._add(case)

    def _add(self, case: Case) -> None:
        self.tests.append(case)
        self._counts.update(_guesses(case))


def _guesses(case: Case) -> list[str]:
    """What a guess of its result would be: a constant, or an argument as it came."""
    copies = [f"argument {place}" for place, value in enumerate(case.args) if value == case.expected]
    return [json.dumps(case.expected), *copies]


def _examples(cases: list[Case], shown: int) -> list[Case]:
    """The first ones with different results, then others."""
    firsts = list({json.dumps(case.expected): case for case in reversed(cases)}.values())[::-1]
    return [*firsts, *(case for case in cases if case not in firsts)][:shown]
