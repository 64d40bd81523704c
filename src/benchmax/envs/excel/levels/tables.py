"""A table with a header: totals of a column, and columns computed from others, by one or two calls."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

from benchmax.envs.excel.levels.distinguishing_inputs import Sheets
from benchmax.envs.excel.levels.formulas import AGGREGATES, SIGNS
from benchmax.envs.excel.levels.task import SHEET, Task, cells_task, formula_task, put, table
from benchmax.envs.excel.levels.words import items

HEADER = ("Item", "Price", "Units", "Stock")
_COLUMNS = {"Price": "B", "Units": "C", "Stock": "D"}


def stock_list(names: Sequence[str]) -> Callable[[random.Random], Sheets]:
    """Makes tables with these items and other numbers each time."""

    def inputs(draw: random.Random) -> Sheets:
        rows = [[name, draw.randint(2, 99), draw.randint(2, 99), draw.randint(2, 99)] for name in names]
        return {SHEET: table([HEADER, *rows])}

    return inputs


def column(sheets: Sheets, letter: str, count: int) -> list[Any]:
    """The values below a header."""
    return [sheets[SHEET].get(f"{letter}{row}") for row in range(2, count + 2)]


def column_total(draw: random.Random) -> Task:
    names, word, head = items(draw, draw.randint(4, 6)), draw.choice(list(AGGREGATES)), draw.choice(list(_COLUMNS))
    function, compute = AGGREGATES[word]
    letter, last, target = _COLUMNS[head], len(names) + 1, f"{draw.choice('BCDF')}{len(names) + draw.randint(3, 5)}"

    return cells_task(
        draw,
        f"Put the {word} of the {head} column in {target}.",
        stock_list(names),
        lambda sheets: compute([each for each in column(sheets, letter, len(names)) if each is not None]),
        f"={function}({letter}2:{letter}{last})",
        target,
    )


def new_column(draw: random.Random) -> Task:
    names, word = items(draw, draw.randint(4, 6)), draw.choice(list(SIGNS))
    sign, compute = SIGNS[word]
    (one, a), (other, b) = draw.sample(list(_COLUMNS.items()), 2)
    area = f"E2:E{len(names) + 1}"
    return cells_task(
        draw,
        f"Fill {area} with {one} {word} {other} of each row.",
        stock_list(names),
        lambda sheets, row: compute(sheets[SHEET][f"{a}{row}"], sheets[SHEET][f"{b}{row}"]),
        f"={a}2{sign}{b}2",
        area,
    )


def share_of_total(draw: random.Random) -> Task:
    names, (head, letter) = items(draw, draw.randint(4, 6)), draw.choice(list(_COLUMNS.items()))
    last = len(names) + 1
    area = f"E2:E{last}"
    return cells_task(
        draw,
        f"Fill {area} with the {head} of each row as a share of the sum of all {head}.",
        stock_list(names),
        lambda sheets, row: sheets[SHEET][f"{letter}{row}"] / sum(column(sheets, letter, len(names))),
        f"={letter}2/SUM({letter}$2:{letter}${last})",
        area,
    )


def one_of_the_items(draw: random.Random) -> Task:
    names, word = items(draw, draw.randint(4, 6)), draw.choice(list(SIGNS))
    sign, compute = SIGNS[word]
    (one, other), (head, letter) = draw.sample(range(len(names)), 2), draw.choice(list(_COLUMNS.items()))
    a, b, target = f"{letter}{one + 2}", f"{letter}{other + 2}", f"F{draw.randint(1, 9)}"
    return cells_task(
        draw,
        f"Put the {head} of {names[one]} {word} the {head} of {names[other]} in {target}.",
        stock_list(names),
        lambda sheets: compute(sheets[SHEET][a], sheets[SHEET][b]),
        f"={a}{sign}{b}",
        target,
    )


def column_and_total(draw: random.Random) -> Task:
    """Two calls: the second uses what the first wrote."""
    names = items(draw, draw.randint(4, 6))
    last = len(names) + 1
    area, target = f"E2:E{last}", f"E{last + 2}"

    def answer(sheets: Sheets) -> Sheets:
        values = list(map(operator.mul, column(sheets, "B", len(names)), column(sheets, "C", len(names))))
        return {SHEET: {f"E{row}": value for row, value in enumerate(values, 2)} | {target: sum(values)}}

    return formula_task(
        draw,
        f"Fill {area} with Price times Units of each row, and put the sum of {area} in {target}.",
        stock_list(names),
        answer,
        [put(area, "=B2*C2"), put(target, f"=SUM({area})")],
        f"{area}, {target}",
    )
