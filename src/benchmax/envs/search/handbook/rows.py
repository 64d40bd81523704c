"""The levels of difficulty, and the rows of each, made by seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from benchmax.envs.generated_tasks import draw_different
from benchmax.envs.search.handbook.tasks import KINDS, Drawn, draw

NAME = "handbook"
ROWS = 640
_TRIES = 5_000
"""Draws that bring nothing new: the level has no more questions."""
DEFAULT_LEVEL = "lookup"
LEVELS = {"lookup": ("lookup",), "steps": ("two_steps",), "chains": ("two_steps", "three_steps")}
"""From one search to three, each of which needs what the last one found."""


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """The first `rows` rows of a level, in the columns `question`, `answer` and `reference_chunks`."""
    rng = Random(f"benchmax handbook {level} {seed}")

    def question(kinds: Sequence[str]) -> Drawn | None:
        return draw(rng, KINDS[rng.choice(kinds)])

    wanted = ROWS if rows is None else rows
    drawn = draw_different([LEVELS[level]], question, lambda each: each.question, wanted, _TRIES)
    return [_row(each, level) for each in drawn]


def _row(drawn: Drawn, level: str) -> dict[str, Any]:
    chunks = [{"id": each.id, "metadata": {"title": each.name}, "content": each.text} for each in drawn.records]
    return {
        "question": drawn.question,
        "answer": drawn.answer,
        "reference_chunks": chunks,
        "corpus": NAME,
        "level": level,
        "facts": {"start": drawn.start, "labels": list(drawn.labels)},
    }
