"""Rows of several environments in one list, so that any beginning of it has each of them by its weight.

Weights decide how many rows of each there are, so they hold in every trainer that takes rows one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def shares(counts: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, int]:
    """How many rows to take of each, so that they are in the ratio of the weights and none is taken twice."""
    full = {name: count for name, count in counts.items() if count}
    most = min((count / weights[name] for name, count in full.items()), default=0.0)
    return {name: max(1, min(count, round(most * weights[name]))) for name, count in full.items()}


def mixed(rows: Mapping[str, Sequence[Any]], weights: Mapping[str, float]) -> list[tuple[str, Any]]:
    """(part, row) for the rows taken, each part spread evenly over the whole list."""
    taken = shares({name: len(each) for name, each in rows.items()}, weights)
    places = [
        ((number + 0.5) / count, order, name, number)
        for order, (name, count) in enumerate(taken.items())
        for number in range(count)
    ]
    return [(name, rows[name][number]) for _, _, name, number in sorted(places)]
