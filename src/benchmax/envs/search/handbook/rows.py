"""The levels of difficulty, and the rows of each, made by seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

from benchmax.envs.search.handbook.tasks import KINDS, Drawn, draw

NAME = "handbook"
ROWS = 640
_MISSES = 5_000
"""Draws in a row that bring nothing new: the level has no more questions."""
DEFAULT_LEVEL = "lookup"
LEVELS = {"lookup": ("lookup",), "steps": ("two_steps",), "chains": ("two_steps", "three_steps")}
"""From one search to three, each of which needs what the last one found."""


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """The first `rows` rows of a level, in the columns `question`, `answer` and `reference_chunks`."""
    return list(islice(_all_rows(level, seed), rows))


def _all_rows(level: str, seed: int) -> Iterator[dict[str, Any]]:
    rng = Random(f"benchmax handbook {level} {seed}")
    asked: set[str] = set()
    misses = 0
    while misses < _MISSES:
        drawn = draw(rng, KINDS[rng.choice(LEVELS[level])])
        misses += 1
        if drawn is not None and drawn.question not in asked:
            asked.add(drawn.question)
            misses = 0
            yield _row(drawn, level)


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
