"""What a kind of task is: how one is drawn from a company, and how it is solved with the tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from benchmax.envs.crm.company import Company
from benchmax.envs.generated_tasks import Kind, Steps

EXACT, FUZZY = "exact_match", "fuzzy_match"
NOTHING = "None"
"""The answer when no record is what was asked for."""

Call: TypeAlias = tuple[str, dict[str, Any]]
Facts: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task: the question, its answer, and the facts in the question that a solution starts from."""

    query: str
    answer: str | None
    """None when what was drawn has no single answer: the task is not used."""
    facts: Facts
    required: str = ""
    """What must be known besides the question, such as today's date."""
    metric: str = EXACT


Draw: TypeAlias = Callable[[Company, Random, bool], Drawn | None]
"""Draws a task of a company, a hard one where the flag says so."""
Solve: TypeAlias = Callable[[Mapping[str, Any]], Steps]


KINDS: dict[str, Kind] = {}
"""Every kind by its name."""


def kind(name: str, draw: Draw) -> Callable[[Solve], Solve]:
    """Add a kind to the table: how it is drawn, and, as what is decorated, how it is solved."""

    def added(solve: Solve) -> Solve:
        KINDS[name] = Kind(name, draw, solve)
        return solve

    return added


def call(tool: str, **arguments: Any) -> Generator[Call, str, Any]:
    """Call a tool and return its result: what its JSON means, or the text where it is none."""
    text = yield tool, arguments
    try:
        return json.loads(text)
    except ValueError:
        return text
