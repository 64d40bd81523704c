"""The levels, easiest first, and the rows of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from benchmax.envs.code.levels import algorithms, cases, lines, steps
from benchmax.envs.code.levels.task import MakeTask, Task

LEVELS: dict[str, Sequence[MakeTask]] = {
    "lines": lines.makers(),
    "steps": steps.makers(),
    "cases": cases.makers(),
    "algorithms": algorithms.makers(),
}
DEFAULT_LEVEL = "lines"
ROWS = 1_000
_TRIES = 50
"""Draws for one new question before a kind is taken to have no more."""


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """Different questions of a level, the same for the same seed; fewer where the level has no more."""
    draw = random.Random(f"{level} {seed}")
    makers, wanted = list(LEVELS[level]), ROWS if rows is None else rows
    found: dict[str, Task] = {}
    while makers and len(found) < wanted:
        for make in list(makers):
            if not _add_task(make, draw, found):
                makers.remove(make)
    made = [task.as_row(level) for task in found.values()][:wanted]
    draw.shuffle(made)
    return made


def _add_task(make: MakeTask, draw: random.Random, found: dict[str, Task]) -> bool:
    """Whether there was one more."""
    for _ in range(_TRIES):
        plan = make(draw)
        if plan.key not in found and (task := plan.task(draw)) is not None:
            found[plan.key] = task
            return True
    return False
