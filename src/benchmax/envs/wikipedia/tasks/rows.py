"""The levels of difficulty, and the rows of each, made by seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from random import Random
from typing import Any

from benchmax.envs.generated_tasks import Kind
from benchmax.envs.wikipedia.articles.local import LocalArticles
from benchmax.envs.wikipedia.factbook.corpus import NAME, World, open_world
from benchmax.envs.wikipedia.tasks.kinds import KINDS, Drawn, played

ROWS = 400
_MISSES = 2_000
"""Draws in a row that bring nothing new: the level has no more questions."""
_SHARE = 0.03
"""The largest share of a level's rows that may have the same answer: guessing is not to pay."""


@dataclass(frozen=True, slots=True)
class Level:
    kinds: tuple[str, ...]
    calls: int
    """The most calls that a solution may take."""


DEFAULT_LEVEL = "facts"
LEVELS = {
    "facts": Level(("fact",), 1),
    "articles": Level(("detail", "border"), 1),
    "hops": Level(("bridge", "neighbour"), 3),
    "chains": Level(("bridge_neighbour", "comparison"), 7),
}
"""From one search with a short result to several searches and articles."""


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """The first `rows` rows of a level: the columns `Question` and `Answer`, and how the answer is found."""
    return [dict(row) for row in _made(level, ROWS if rows is None else rows, seed, open_world())]


@lru_cache(maxsize=16)
def _made(level: str, rows: int, seed: int, world: World) -> tuple[dict[str, Any], ...]:
    return tuple(islice(_all_rows(level, rows, seed, world), rows))


def _all_rows(level: str, rows: int, seed: int, world: World) -> Iterator[dict[str, Any]]:
    rng = Random(f"benchmax wikipedia {level} {seed}")
    kinds = [KINDS[name] for name in LEVELS[level].kinds]
    articles = LocalArticles(world.index)
    find = cache(articles.find)  # questions share their steps
    asked: dict[str, int] = {}
    questions: set[str] = set()
    most, misses, number = max(2, int(_SHARE * rows)), 0, 0
    while misses < _MISSES:
        kind = kinds[number % len(kinds)]
        drawn = kind.draw(world, rng)
        misses += 1
        if drawn is None or drawn.question in questions or asked.get(drawn.answer, 0) >= most:
            continue
        answer, calls = played(kind.solve(drawn.facts), find, articles.text_of)
        if answer != drawn.answer or calls > LEVELS[level].calls:
            continue
        questions.add(drawn.question)
        asked[drawn.answer] = asked.get(drawn.answer, 0) + 1
        misses, number = 0, number + 1
        yield _row(kind, drawn, level)


def _row(kind: Kind, drawn: Drawn, level: str) -> dict[str, Any]:
    return {
        "Question": drawn.question,
        "Answer": drawn.answer,
        "accepted": drawn.field.accepted(drawn.answer),
        "corpus": NAME,
        "level": level,
        "kind": kind.name,
        "facts": drawn.facts,
    }
