"""Levels of difficulty, easiest first: functions that make a task from a random generator, and rows of them.

    make_rows("lines", rows=1000, seed=0)

`task.py` says what a task is; `lines.py`, `steps.py`, `cases.py` and `algorithms/` make them from `inputs.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from benchmax.envs.code.levels import lines
from benchmax.envs.code.levels.task import MakeTask, Task

LEVELS: dict[str, Sequence[MakeTask]] = {"lines": lines.makers()}
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
            task = _new_task(make, draw, found)
            if task is None:
                makers.remove(make)
            else:
                found[_asked(task)] = task
    made = [task.as_row(level) for task in found.values()][:wanted]
    draw.shuffle(made)
    return made


def _asked(task: Task) -> str:
    """What is asked, whatever names and examples are: rows that are held out ask what no other row asks."""
    words = "|".join(task.params.split(", "))
    return re.sub(rf"\b(?:{words})\b", "_", task.asked)


def _new_task(make: MakeTask, draw: random.Random, found: dict[str, Task]) -> Task | None:
    tasks = (make(draw) for _ in range(_TRIES))
    return next((task for task in tasks if task is not None and _asked(task) not in found), None)
