"""Calls that aim at the constants of a solution, made from calls that were drawn.

They stay within what was drawn: numbers between the least and the greatest, letters that occurred, texts that are not
longer; texts of a list that always had one length keep it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

_SWEPT = 160
"""Up to so many numbers are all tried, of more only those near constants."""
_AROUND = 15
"""Numbers on both sides of one that was drawn, where not all are tried."""
_BASES = 2
"""Calls to make others from."""


def aimed_calls(calls: Sequence[tuple[Any, ...]], constants: Sequence[int | str]) -> list[tuple[Any, ...]]:
    """The drawn calls with one argument changed."""
    groups = []
    for place in range(len(calls[0])):
        aim = _Aim([call[place] for call in calls], constants)
        for call in calls[-_BASES:]:
            groups.append([(*call[:place], value, *call[place + 1 :]) for value in aim.variants(call[place])])
    return [call for calls in itertools.zip_longest(*groups) for call in calls if call is not None]


class _Aim:
    """What one argument may become."""

    def __init__(self, seen: Sequence[Any], constants: Sequence[int | str]) -> None:
        leaves = list(_leaves(seen))
        texts = [each for each in leaves if isinstance(each, str)]
        self.letters = set("".join(texts))
        self.longest = max(map(len, texts), default=0)
        self.fixed = any(isinstance(each, list) for each in seen) and all(
            len({len(item) for item in each}) <= 1 for each in seen if isinstance(each, list) and texts
        )
        numbers = [each for each in leaves if isinstance(each, int)]
        written = [each for each in constants if isinstance(each, int)]
        self.sizes = sorted({0, 1, 2, *(each + more for each in written for more in (-1, 0, 1) if 0 < each < 20)})
        self.low, self.high = min(numbers, default=0), max(numbers, default=0)
        self.numbers = _near(written, self.low, self.high) if numbers else []
        self.words = [each for each in constants if isinstance(each, str) and each and self.letters >= set(each)]

    def variants(self, value: Any) -> list[Any]:
        if isinstance(value, int):
            around = range(max(self.low, value - _AROUND), min(self.high, value + _AROUND) + 1)
            return list(dict.fromkeys((*around, *self.numbers)) if self.high - self.low > _SWEPT else self.numbers)
        if isinstance(value, str):
            return self._texts(value)
        return self._lists(value) if isinstance(value, list) else []

    def _texts(self, text: str) -> list[str]:
        long = text * (self.longest // len(text) + 1) if text else ""
        cut = [long[:size] for size in self.sizes if size <= self.longest]
        same = [text[:1] * size for size in self.sizes if 0 < size <= self.longest]
        with_words = [
            made for word in self.words for made in (word, word.upper(), text + word, word + text, word + word + text)
        ]
        return [*cut, *same, *(made for made in with_words if self.letters >= set(made))]

    def _lists(self, items: list[Any]) -> list[list[Any]]:
        made = [items[:size] for size in self.sizes if size < len(items)] + [items[:-1], items[:1] * 2]
        if not items or isinstance(items[0], list) or (isinstance(items[0], str) and self.fixed):
            return made
        for item in self.variants(items[0]):
            made += [[item], [item, *items[1:]], [*items[:-1], item]]
        return made


def _near(constants: Sequence[int], low: int, high: int) -> list[int]:
    """The constants, their products and the numbers around them first, then all others if they are few."""
    products = [a * b for a, b in itertools.combinations_with_replacement(constants, 2)] if len(constants) < 7 else []
    near = [each + more for each in (*constants, *products) for more in (0, 1, -1)]
    others = range(low, high + 1) if high - low <= _SWEPT else ()
    return [each for each in dict.fromkeys((*near, *others)) if low <= each <= high]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value
