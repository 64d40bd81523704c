"""The levels, easiest first, and the rows of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from benchmax.envs.code.levels import algorithms, cases, lines, steps
from benchmax.envs.code.levels.task import MakeTask
from benchmax.envs.generated_tasks import draw_different

LEVELS: dict[str, Sequence[MakeTask]] = {
    "lines": lines.MAKERS,
    "steps": steps.MAKERS,
    "cases": cases.MAKERS,
    "algorithms": algorithms.MAKERS,
}
DEFAULT_LEVEL = "lines"
ROWS = 1_000
_TRIES = 50
"""Draws for one new question before a kind is taken to have no more."""


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """Different questions of a level, the same for the same seed; fewer where the level has no more."""
    rng, asked = random.Random(f"{level} {seed}"), set[str]()

    def draw(make: MakeTask) -> dict[str, Any] | None:
        plan = make(rng)
        row = None if plan.key in asked else plan.row(rng)
        if row is not None:
            asked.add(plan.key)
        return row

    wanted = ROWS if rows is None else rows
    found = draw_different(LEVELS[level], draw, lambda row: row["prompt"], wanted, _TRIES)
    rng.shuffle(found)
    return [{**row, "level": level} for row in found]
