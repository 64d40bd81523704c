"""Which rows are trained on and which are held out: the one rule for every split.

Rows are often sorted, so those held out are spread evenly over all of them. `last` takes the end instead, which is
right for rows in order of time. Enough rows always remain for training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from benchmax.errors import DatasetError
from benchmax.limits import MIN_TRAIN_ROWS

T = TypeVar("T")
Order = Literal["spread", "last"]
HELD_OUT_SHARE = 0.2
"""Share of the rows that is held out by default."""


def held_out_indices(
    count: int, share: float = HELD_OUT_SHARE, *, order: Order = "spread", least: int = MIN_TRAIN_ROWS
) -> list[int]:
    """Which of `count` rows are held out, leaving at least `least` to train on."""
    up = 0.0 if order == "last" else 0.5  # `last` rounds down, as runs of earlier versions did, which may be resumed
    aside = max(0, min(int(count * share + up + 1e-9), count - least))
    if order == "last":
        return list(range(count - aside, count))
    return [(number + 1) * count // aside - 1 for number in range(aside)]


def held_out_of_parts(
    parts: Iterable[str], share: float = HELD_OUT_SHARE, *, order: Order = "spread", least: int = MIN_TRAIN_ROWS
) -> set[int]:
    """The same for rows that belong to several parts, each of which is split by the rule."""
    places: dict[str, list[int]] = {}
    for at, part in enumerate(parts):
        places.setdefault(part, []).append(at)
    each = -(-least // max(1, len(places)))
    counts = {part: held_out_indices(len(own), share, order=order, least=each) for part, own in places.items()}
    return {places[part][index] for part, indices in counts.items() for index in indices}


def hold_out(
    rows: Sequence[T],
    share: float = HELD_OUT_SHARE,
    *,
    order: Order = "spread",
    least: int = MIN_TRAIN_ROWS,
    part: Callable[[T], str] = lambda row: "",
) -> tuple[list[T], list[T]]:
    """(training rows, held-out rows), each in the order given. Rows of each `part` are split by the rule apart."""
    aside = held_out_of_parts(map(part, rows), share, order=order, least=least)
    return [row for at, row in enumerate(rows) if at not in aside], [rows[at] for at in sorted(aside)]


def split_rows(rows: Iterable[T], train: float = 0.8, seed: int | None = None) -> tuple[list[T], list[T]]:
    """(train, eval) rows: the first part and the rest, in order, or shuffled when a seed is given."""
    if not 0 < train < 1:
        raise DatasetError(f"train is {train}; give the share of rows to train on, between 0 and 1, such as 0.8.")
    rows = list(rows)
    if seed is not None:
        random.Random(seed).shuffle(rows)
    at = int(len(rows) * train)
    return rows[:at], rows[at:]
