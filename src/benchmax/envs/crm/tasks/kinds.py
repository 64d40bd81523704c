"""What a kind of task is: how one is drawn from a company, and how it is solved with the tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from benchmax.envs.crm.company import Company

EXACT, FUZZY = "exact_match", "fuzzy_match"
NOTHING = "None"
"""The answer when no record is what was asked for."""

Call: TypeAlias = tuple[str, dict[str, Any]]
Facts: TypeAlias = dict[str, Any]
Steps: TypeAlias = Generator[Call, str, Any]
"""Calls of tools, each of which its result comes back to; the value it returns is what they were for."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task: the question, its answer, and the facts in the question that a solution starts from."""

    query: str
    answer: str
    facts: Facts
    required: str = ""
    """What must be known besides the question, such as today's date."""
    metric: str = EXACT


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task."""

    name: str
    draw: Callable[[Company, Random, bool], Drawn | None]
    """A task of a company, a hard one where the flag says so; None when what was drawn has no single answer."""
    solve: Callable[[Mapping[str, Any]], Steps]
    """The calls that lead from the facts to the answer, which it returns as text."""


@dataclass(slots=True)
class Kinds:
    """The table of kinds, filled by a decorator on their solutions."""

    by_name: dict[str, Kind] = field(default_factory=dict)

    def add(self, name: str, draw: Callable[[Company, Random, bool], Drawn | None]) -> Callable[[Any], Any]:
        def added(solve: Callable[[Mapping[str, Any]], Steps]) -> Callable[[Mapping[str, Any]], Steps]:
            self.by_name[name] = Kind(name, draw, solve)
            return solve

        return added


_KINDS = Kinds()
kind = _KINDS.add
KINDS = _KINDS.by_name
"""Every kind by its name."""


def call(tool: str, **arguments: Any) -> Generator[Call, str, Any]:
    """Call a tool and return its result: what its JSON means, or the text where it is none."""
    text = yield tool, arguments
    try:
        return json.loads(text)
    except ValueError:
        return text


def only(values: Mapping[str, float], best: Callable[..., float] = max) -> str | None:
    """The one key with the largest (or smallest) value; None when there are several or none."""
    top = best(values.values(), default=None)
    found = [name for name, value in values.items() if value == top]
    return found[0] if len(found) == 1 else None
