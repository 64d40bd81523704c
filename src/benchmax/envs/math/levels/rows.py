"""The levels, easiest first, and the rows of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from benchmax.envs.generated_tasks import draw_different
from benchmax.envs.math.levels import arithmetic, competition, school
from benchmax.envs.math.levels.task import MakeTask

LEVELS: dict[str, Sequence[MakeTask]] = {
    "sums": (arithmetic.sum_of_digits,),
    "arithmetic": (arithmetic.sum_of_two, arithmetic.difference, arithmetic.product, arithmetic.product),
    "expressions": (arithmetic.chain, arithmetic.brackets, arithmetic.brackets_divided),
    "fractions": (school.fraction_sum, school.fraction_product, school.percentage, school.average),
    "algebra": (school.linear, school.two_unknowns, school.quadratic, school.sequence),
    "words": (school.shopping, school.travel, school.savings, school.sharing),
    "competition": (
        competition.committee, competition.remainder, competition.two_dice, competition.distance,
        competition.circle, competition.inequality, competition.common_divisor, competition.sum_of_squares,
    ),
}  # fmt: skip
DEFAULT_LEVEL = "arithmetic"
SYMBOLIC = frozenset({"algebra", "competition"})
"""Levels some of whose answers are no plain numbers."""
ROWS = 1_000


def make_rows(level: str, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """Different questions of a level, the same for the same seed; fewer where the level has no more."""
    draw = random.Random(f"{level} {seed}")
    wanted = ROWS if rows is None else rows
    tasks = draw_different(LEVELS[level], lambda make: make(draw), lambda task: task.question, wanted)
    return [task.as_row() for task in tasks]
