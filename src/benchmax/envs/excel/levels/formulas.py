"""One short formula over a few numbers: which function, which cells, and where to put it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

from benchmax.envs.excel.levels.distinguishing_inputs import Sheets
from benchmax.envs.excel.levels.task import SHEET, Task, cells_task
from benchmax.envs.excel.workbooks.ranges import cell_name

AGGREGATES: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "sum": ("SUM", sum),
    "largest": ("MAX", max),
    "smallest": ("MIN", min),
    "average": ("AVERAGE", fmean),
}
SIGNS: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "plus": ("+", lambda a, b: a + b),
    "minus": ("-", lambda a, b: a - b),
    "times": ("*", lambda a, b: a * b),
}


def aggregate(draw: random.Random) -> Task:
    """`Put the sum of B2:B5 in D1.`"""
    word = draw.choice(list(AGGREGATES))
    function, compute = AGGREGATES[word]
    names, target = _places(draw)
    area = f"{names[0]}:{names[-1]}"
    return cells_task(
        draw,
        f"Put the {word} of {area} in {target}.",
        lambda source: _numbers(source, names),
        lambda sheets: compute([sheets[SHEET][name] for name in names if name in sheets[SHEET]]),
        f"={function}({area})",
        target,
    )


def two_cells(draw: random.Random) -> Task:
    """`Put B2 times B4 in D1.`"""
    word = draw.choice(list(SIGNS))
    sign, compute = SIGNS[word]
    names, target = _places(draw)
    a, b = draw.sample(names, 2)
    return cells_task(
        draw,
        f"Put {a} {word} {b} in {target}.",
        lambda source: _numbers(source, names),
        lambda sheets: compute(sheets[SHEET][a], sheets[SHEET][b]),
        f"={a}{sign}{b}",
        target,
    )


def _places(draw: random.Random) -> tuple[list[str], str]:
    """Three or four cells below one another, and one that is free."""
    column, top, count = draw.randint(1, 4), draw.randint(1, 6), draw.randint(3, 4)
    free = draw.choice([each for each in range(1, 8) if each != column])
    return [cell_name(top + n, column) for n in range(count)], cell_name(draw.randint(1, 9), free)


def _numbers(draw: random.Random, names: Sequence[str]) -> Sheets:
    return {SHEET: {name: draw.randint(2, 99) for name in names}}
