"""Conditions and look-ups: some of the rows count, or one of them has to be found."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeAlias

from benchmax.envs.excel.levels.cases import Answer, Inputs, Sheets
from benchmax.envs.excel.levels.formulas import SHEET
from benchmax.envs.excel.levels.task import Task, formula_task, table
from benchmax.envs.excel.levels.words import REGIONS, items

HEADER = ("Item", "Region", "Units", "Price")
Row: TypeAlias = tuple[str, str, int, int]
Compute: TypeAlias = Callable[[Row, Sequence[Row]], Any]
"""What a cell holds, from its row and all rows."""


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


def _rows(sheets: Sheets, count: int) -> dict[int, Row]:
    """The orders that are there, by the numbers of their rows."""
    cells = sheets[SHEET]
    there = [n for n in range(2, count + 2) if f"A{n}" in cells]
    return {n: (cells[f"A{n}"], cells[f"B{n}"], cells[f"C{n}"], cells[f"D{n}"]) for n in there}


def _one(
    draw: random.Random,
    instruction: str,
    formula: str,
    compute: Callable[[Sheets], Any],
    target: str,
    inputs: Inputs,
    *,
    aimed: Inputs | None = None,
    rival: Callable[[Sheets], Any] | None = None,
) -> Task:
    """A task of one cell."""

    def in_target(value: Callable[[Sheets], Any]) -> Answer:
        return lambda sheets: {SHEET: {target: value(sheets)}}

    call = ("set_cell", {"cell": target, "value": formula})
    rivals = [] if rival is None else [in_target(rival)]
    return formula_task(draw, instruction, inputs, in_target(compute), [call], target, aimed=aimed, rivals=rivals)


def total_of_region(draw: random.Random) -> Task:
    count, region, target = draw.randint(6, 8), draw.choice(REGIONS), f"F{draw.randint(1, 9)}"
    last = count + 1
    return _one(
        draw,
        f"Put the total Units of all orders from the {region} in {target}.",
        f'=SUMIF(B2:B{last},"{region}",C2:C{last})',
        lambda sheets: sum(units for _, where, units, _ in _rows(sheets, count).values() if where == region),
        target,
        _orders(count),
        aimed=_aimed(count, region),
    )


def average_of_region(draw: random.Random) -> Task:
    count, region, target = draw.randint(6, 8), draw.choice(REGIONS), f"F{draw.randint(1, 9)}"
    last = count + 1
    return _one(
        draw,
        f"Put the average Price of all orders from the {region} in {target}.",
        f'=AVERAGEIF(B2:B{last},"{region}",D2:D{last})',
        lambda sheets: fmean(price for _, where, _, price in _rows(sheets, count).values() if where == region),
        target,
        _orders(count),
        aimed=_aimed(count, region),
    )


def orders_over(draw: random.Random) -> Task:
    count, least, target = draw.randint(6, 8), draw.randint(20, 70), f"F{draw.randint(1, 9)}"
    return _one(
        draw,
        f"Put the number of orders with more than {least} Units in {target}.",
        f'=COUNTIF(C2:C{count + 1},">{least}")',
        lambda sheets: sum(units > least for _, _, units, _ in _rows(sheets, count).values()),
        target,
        _orders(count),
        aimed=_aimed(count, units=least),
        rival=lambda sheets: sum(units >= least for _, _, units, _ in _rows(sheets, count).values()),
    )


def total_with_two_conditions(draw: random.Random) -> Task:
    count, region, most, target = draw.randint(6, 8), draw.choice(REGIONS), draw.randint(30, 80), "F3"
    last = count + 1

    def total(fits: Callable[[int], bool], sheets: Sheets) -> int:
        return sum(p for _, where, units, p in _rows(sheets, count).values() if where == region and fits(units))

    return _one(
        draw,
        f"Put the total Price of all orders from the {region} with at most {most} Units in {target}.",
        f'=SUMIFS(D2:D{last},B2:B{last},"{region}",C2:C{last},"<={most}")',
        partial(total, lambda units: units <= most),
        target,
        _orders(count),
        aimed=_aimed(count, region, most),
        rival=partial(total, lambda units: units < most),
    )


def price_of_item(draw: random.Random) -> Task:
    """The item stands in a cell, and may be any of them."""
    count, target = draw.randint(6, 8), f"G{draw.randint(1, 9)}"

    def asked(source: random.Random, rows: list[list[Any]]) -> dict[str, Any]:
        return {"F1": source.choice(rows)[0]}

    return _one(
        draw,
        f"F1 holds the name of an item. Put its Price in {target}.",
        f"=VLOOKUP(F1,A2:D{count + 1},4,FALSE)",
        lambda sheets: next(row[3] for row in _rows(sheets, count).values() if row[0] == sheets[SHEET]["F1"]),
        target,
        _orders(count, asked),
    )


def best_item(draw: random.Random) -> Task:
    count, target = draw.randint(6, 8), f"F{draw.randint(1, 9)}"

    def different(source: random.Random, rows: list[list[Any]]) -> dict[str, Any]:
        units = source.sample(range(2, 99), count)
        return {f"C{n}": value for n, value in enumerate(units, 2)}

    return _one(
        draw,
        f"Put the Item with the most Units in {target}.",
        f"=INDEX(A2:A{count + 1},MATCH(MAX(C2:C{count + 1}),C2:C{count + 1},0))",
        lambda sheets: max(_rows(sheets, count).values(), key=lambda row: row[2])[0],
        target,
        _orders(count, different),
    )


def _filled(
    draw: random.Random,
    count: int,
    instruction: str,
    formula: str,
    compute: Compute,
    *,
    aimed: Inputs | None = None,
    rival: Compute | None = None,
) -> Task:
    """A task of a whole column E."""
    area = f"E2:E{count + 1}"

    def filled(each: Compute, sheets: Sheets) -> Sheets:
        rows = _rows(sheets, count)
        return {SHEET: {f"E{n}": each(row, list(rows.values())) for n, row in rows.items()}}

    call = ("fill_cells", {"range": area, "value": formula})
    rivals = [] if rival is None else [partial(filled, rival)]
    return formula_task(
        draw,
        instruction.format(area=area),
        _orders(count),
        partial(filled, compute),
        [call],
        area,
        aimed=aimed,
        rivals=rivals,
    )


def high_or_low(draw: random.Random) -> Task:
    count, least = draw.randint(6, 8), draw.randint(20, 70)
    return _filled(
        draw,
        count,
        f"Fill {{area}} with high where Units are more than {least}, and with low elsewhere.",
        f'=IF(C2>{least},"high","low")',
        lambda row, rows: "high" if row[2] > least else "low",
        aimed=_aimed(count, units=least),
        rival=lambda row, rows: "high" if row[2] >= least else "low",
    )


def rank(draw: random.Random) -> Task:
    count = draw.randint(6, 8)
    return _filled(
        draw,
        count,
        "Fill {area} with the rank of the Units of each row; the most Units have rank 1.",
        f"=RANK(C2,C$2:C${count + 1})",
        lambda row, rows: 1 + sum(other[2] > row[2] for other in rows),
    )


def discount(draw: random.Random) -> Task:
    count, least, percent = draw.randint(6, 8), draw.randint(20, 70), draw.choice((5, 10, 20, 25))
    return _filled(
        draw,
        count,
        f"Fill {{area}} with Units times Price of each row, less {percent}% where Units are at least {least}.",
        f"=C2*D2*IF(C2>={least},1-{percent}%,1)",
        lambda row, rows: row[2] * row[3] * (1 - percent / 100 if row[2] >= least else 1),
        aimed=_aimed(count, units=least),
        rival=lambda row, rows: row[2] * row[3] * (1 - percent / 100 if row[2] > least else 1),
    )
