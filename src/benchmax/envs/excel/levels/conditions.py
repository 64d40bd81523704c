"""Conditions and look-ups: some of the rows count, or one of them has to be found."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any, TypeAlias

from benchmax.envs.excel.levels.distinguishing_inputs import Inputs, Sheets
from benchmax.envs.excel.levels.task import SHEET, MakeTask, Task, cells_task, table
from benchmax.envs.excel.levels.words import REGIONS, items

HEADER = ("Item", "Region", "Units", "Price")
Row: TypeAlias = tuple[Any, ...]
"""An item, its region, units and price."""


def _orders(count: int, extra: Callable[[random.Random, list[list[Any]]], dict[str, Any]] | None = None) -> Inputs:
    """Makes tables of orders in which every region occurs, with cells beside them."""

    def inputs(draw: random.Random) -> Sheets:
        regions = [*REGIONS, *draw.choices(REGIONS, k=count - len(REGIONS))]
        draw.shuffle(regions)
        rows: list[list[Any]] = [
            [item, region, draw.randint(2, 99), draw.randint(2, 60)]
            for item, region in zip(items(draw, count), regions, strict=True)
        ]
        return {SHEET: table([HEADER, *rows]) | (extra(draw, rows) if extra else {})}

    return inputs


def _aimed(count: int, region: str | None = None, units: int | None = None) -> Inputs:
    """Makes tables of which half of the orders are from a region, and a third have exactly so many units."""
    inputs = _orders(count)

    def aimed(draw: random.Random) -> Sheets:
        cells = inputs(draw)[SHEET]
        for n in range(2, count + 2):
            if region is not None and draw.random() < 1 / 2:
                cells[f"B{n}"] = region
            if units is not None and draw.random() < 1 / 3:
                cells[f"C{n}"] = units
        return {SHEET: cells}

    return aimed


def _rows(sheets: Sheets, count: int) -> list[Row]:
    """The orders that are there."""
    cells = sheets[SHEET]
    return [tuple(cells[f"{letter}{n}"] for letter in "ABCD") for n in range(2, count + 2) if f"A{n}" in cells]


def _of_region(word: str, head: str, function: str, compute: Callable[[list[int]], float]) -> MakeTask:
    at = HEADER.index(head)
    letter = "ABCD"[at]

    def make(draw: random.Random) -> Task:
        count, region, target = draw.randint(6, 8), draw.choice(REGIONS), f"F{draw.randint(1, 9)}"
        last = count + 1
        return cells_task(
            draw,
            f"Put the {word} {head} of all orders from the {region} in {target}.",
            _orders(count),
            lambda sheets: compute([row[at] for row in _rows(sheets, count) if row[1] == region]),
            f'={function}(B2:B{last},"{region}",{letter}2:{letter}{last})',
            target,
            aimed=_aimed(count, region),
        )

    return make


total_of_region = _of_region("total", "Units", "SUMIF", sum)
average_of_region = _of_region("average", "Price", "AVERAGEIF", fmean)


def orders_over(draw: random.Random) -> Task:
    count, least, target = draw.randint(6, 8), draw.randint(20, 70), f"F{draw.randint(1, 9)}"
    return cells_task(
        draw,
        f"Put the number of orders with more than {least} Units in {target}.",
        _orders(count),
        lambda sheets: sum(units > least for _, _, units, _ in _rows(sheets, count)),
        f'=COUNTIF(C2:C{count + 1},">{least}")',
        target,
        aimed=_aimed(count, units=least),
        rivals=[lambda sheets: sum(units >= least for _, _, units, _ in _rows(sheets, count))],
    )


def total_with_two_conditions(draw: random.Random) -> Task:
    count, region, most, target = draw.randint(6, 8), draw.choice(REGIONS), draw.randint(30, 80), "F3"
    last = count + 1

    def total(fits: Callable[[int], bool], sheets: Sheets) -> int:
        return sum(price for _, where, units, price in _rows(sheets, count) if where == region and fits(units))

    return cells_task(
        draw,
        f"Put the total Price of all orders from the {region} with at most {most} Units in {target}.",
        _orders(count),
        partial(total, lambda units: units <= most),
        f'=SUMIFS(D2:D{last},B2:B{last},"{region}",C2:C{last},"<={most}")',
        target,
        aimed=_aimed(count, region, most),
        rivals=[partial(total, lambda units: units < most)],
    )


def price_of_item(draw: random.Random) -> Task:
    """The item stands in a cell, and may be any of them."""
    count, target = draw.randint(6, 8), f"G{draw.randint(1, 9)}"

    def asked(source: random.Random, rows: list[list[Any]]) -> dict[str, Any]:
        return {"F1": source.choice(rows)[0]}

    return cells_task(
        draw,
        f"F1 holds the name of an item. Put its Price in {target}.",
        _orders(count, asked),
        lambda sheets: next(row[3] for row in _rows(sheets, count) if row[0] == sheets[SHEET]["F1"]),
        f"=VLOOKUP(F1,A2:D{count + 1},4,FALSE)",
        target,
    )


def best_item(draw: random.Random) -> Task:
    count, target = draw.randint(6, 8), f"F{draw.randint(1, 9)}"

    def different(source: random.Random, rows: list[list[Any]]) -> dict[str, Any]:
        units = source.sample(range(2, 99), count)
        return {f"C{n}": value for n, value in enumerate(units, 2)}

    return cells_task(
        draw,
        f"Put the Item with the most Units in {target}.",
        _orders(count, different),
        lambda sheets: max(_rows(sheets, count), key=lambda row: row[2])[0],
        f"=INDEX(A2:A{count + 1},MATCH(MAX(C2:C{count + 1}),C2:C{count + 1},0))",
        target,
    )


def _units(sheets: Sheets, row: int) -> Any:
    return sheets[SHEET][f"C{row}"]


def high_or_low(draw: random.Random) -> Task:
    count, least = draw.randint(6, 8), draw.randint(20, 70)
    area = f"E2:E{count + 1}"
    return cells_task(
        draw,
        f"Fill {area} with high where Units are more than {least}, and with low elsewhere.",
        _orders(count),
        lambda sheets, row: "high" if _units(sheets, row) > least else "low",
        f'=IF(C2>{least},"high","low")',
        area,
        aimed=_aimed(count, units=least),
        rivals=[lambda sheets, row: "high" if _units(sheets, row) >= least else "low"],
    )


def rank(draw: random.Random) -> Task:
    count = draw.randint(6, 8)
    area = f"E2:E{count + 1}"
    return cells_task(
        draw,
        f"Fill {area} with the rank of the Units of each row; the most Units have rank 1.",
        _orders(count),
        lambda sheets, row: 1 + sum(other[2] > _units(sheets, row) for other in _rows(sheets, count)),
        f"=RANK(C2,C$2:C${count + 1})",
        area,
    )


def discount(draw: random.Random) -> Task:
    count, least, percent = draw.randint(6, 8), draw.randint(20, 70), draw.choice((5, 10, 20, 25))
    area = f"E2:E{count + 1}"

    def paid(fits: Callable[[int], bool], sheets: Sheets, row: int) -> Any:
        units, price = _units(sheets, row), sheets[SHEET][f"D{row}"]
        return units * price * (1 - percent / 100 if fits(units) else 1)

    return cells_task(
        draw,
        f"Fill {area} with Units times Price of each row, less {percent}% where Units are at least {least}.",
        _orders(count),
        partial(paid, lambda units: units >= least),
        f"=C2*D2*IF(C2>={least},1-{percent}%,1)",
        area,
        aimed=_aimed(count, units=least),
        rivals=[partial(paid, lambda units: units > least)],
    )
