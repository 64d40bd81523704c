"""Arguments to call functions with: numbers, words, texts and lists, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

DrawArgs: TypeAlias = Callable[[random.Random], Sequence[Any]]
"""Draws the arguments of a call."""
WORDS = (
    "apple", "river", "stone", "cloud", "tiger", "lemon", "paper", "green", "house", "music", "seven", "table", "onion",
    "level", "radar", "civic", "banana", "silver", "window", "letter", "coffee", "garden", "planet", "yellow", "bottle",
)  # fmt: skip
LETTERS = "abcdeilmnorst"


def numbers(draw: random.Random, low: int = -20, high: int = 40) -> list[int]:
    """A list of numbers, some of them twice."""
    drawn = [draw.randint(low, high) for _ in range(draw.randint(3, 8))]
    if draw.random() < 0.5:
        drawn.insert(draw.randrange(len(drawn)), draw.choice(drawn))
    return drawn


def word(draw: random.Random) -> str:
    """A word, or letters that are none."""
    if draw.random() < 0.5:
        return draw.choice(WORDS)
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(3, 9)))


def words(draw: random.Random) -> list[str]:
    return [word(draw) for _ in range(draw.randint(2, 6))]


def sentence(draw: random.Random) -> str:
    return " ".join(word(draw).capitalize() if draw.random() < 0.3 else word(draw) for _ in range(draw.randint(2, 6)))


def grid(draw: random.Random, values: str | range) -> list[list[Any]]:
    rows, columns = draw.randint(2, 5), draw.randint(2, 5)
    return [[draw.choice(values) for _ in range(columns)] for _ in range(rows)]
