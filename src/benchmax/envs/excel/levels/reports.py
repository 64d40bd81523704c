"""Several sheets, dates, times, texts, blanks and errors."""

from __future__ import annotations

import calendar
import datetime
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmax.envs.excel.levels.distinguishing_inputs import Sheets
from benchmax.envs.excel.levels.task import Task, cells_task, formula_task, put, table
from benchmax.envs.excel.levels.words import FIRST, ITEMS, LAST, date, day
from benchmax.envs.excel.workbooks.values import from_serial, number_of

_ORDERS = ("Item", "Date", "Amount")


def _day_of(value: Any) -> datetime.date:
    return from_serial(number_of(value) or 0).date()


def total_of_month(draw: random.Random) -> Task:
    count, month = draw.randint(6, 9), draw.randint(1, 11)
    last = count + 1

    first, after = datetime.date(2024, month, 1), datetime.date(2024, month + 1, 1)

    def inputs(source: random.Random) -> Sheets:
        days = [datetime.date(2024, month, source.randint(1, 28)), *(day(source) for _ in range(count - 1))]
        return sheets_of(source, days)

    def at_the_ends(source: random.Random) -> Sheets:
        middle, last_day = first.replace(day=source.randint(2, 27)), after - datetime.timedelta(1)
        return sheets_of(source, source.choices((first, middle, last_day, after), k=count))

    def sheets_of(source: random.Random, days: list[datetime.date]) -> Sheets:
        rows = [[source.choice(ITEMS), date(each), source.randint(10, 900)] for each in days]
        report = {"A1": "Month", "B1": "Total", "A2": calendar.month_name[month]}
        return {"Orders": table([_ORDERS, *rows]), "Report": report}

    def total(wanted: Callable[[datetime.date], bool], sheets: Sheets) -> int:
        cells = sheets["Orders"]
        days = {n: _day_of(cells[f"B{n}"]) for n in range(2, last + 1) if f"B{n}" in cells}
        return sum(cells[f"C{n}"] for n, each in days.items() if wanted(each))

    between = f'Orders!B2:B{last},">="&DATE(2024,{month},1),Orders!B2:B{last},"<"&DATE(2024,{month + 1},1)'
    return cells_task(
        draw,
        f"Put the total Amount of the orders of {calendar.month_name[month]} 2024 in cell B2 of the sheet Report.",
        inputs,
        partial(total, lambda each: each.month == month),
        f"=SUMIFS(Orders!C2:C{last},{between})",
        "Report!B2",
        aimed=at_the_ends,
        rivals=[partial(total, lambda each: first < each < after), partial(total, lambda each: first <= each <= after)],
    )


def price_from_other_sheet(draw: random.Random) -> Task:
    """Some items have no price."""
    count, known = draw.randint(4, 6), 5
    area = f"Orders!C2:C{count + 1}"

    def inputs(source: random.Random) -> Sheets:
        names = source.sample(ITEMS, known + 1)
        prices = [[name, source.randint(5, 95)] for name in names[:known]]
        asked = [names[known], *source.choices(names[:known], k=count - 1)]
        source.shuffle(asked)
        orders = [[name, source.randint(2, 20)] for name in asked]
        return {"Orders": table([("Item", "Units"), *orders]), "Prices": table([("Item", "Price"), *prices])}

    def worth(sheets: Sheets, row: int) -> Any:
        orders, prices = sheets["Orders"], sheets["Prices"]
        price = {prices[f"A{n}"]: prices[f"B{n}"] for n in range(2, known + 2) if f"A{n}" in prices}
        item, units = orders[f"A{row}"], orders[f"B{row}"]
        return units * price[item] if item in price else "none"

    return cells_task(
        draw,
        f"Fill {area} with Units times the item's Price on the sheet Prices, or none for items without a price.",
        inputs,
        worth,
        f'=IFERROR(B2*VLOOKUP(A2,Prices!A$2:B${known + 1},2,FALSE),"none")',
        area,
        sheet="Orders",
    )


def _date_task(
    draw: random.Random, count: int, asked: str, shown: Callable[[datetime.date], datetime.date], formula: str
) -> Task:
    """A column of dates, each computed from the Date of its row."""
    area = f"D2:D{count + 1}"

    def inputs(source: random.Random) -> Sheets:
        rows = [[source.choice(ITEMS), date(day(source)), source.randint(10, 900)] for _ in range(count)]
        return {"Orders": table([_ORDERS, *rows])}

    return cells_task(
        draw,
        f"Fill {area} with {asked}.",
        inputs,
        lambda sheets, row: date(shown(_day_of(sheets["Orders"][f"B{row}"]))),
        formula,
        area,
        sheet="Orders",
    )


def due_date(draw: random.Random) -> Task:
    count, days = draw.randint(4, 6), draw.choice((7, 10, 14, 30, 45, 60))
    asked = f"the date {days} days after the Date of each row"
    return _date_task(draw, count, asked, lambda at: at + datetime.timedelta(days), f"=B2+{days}")


def end_of_month(draw: random.Random) -> Task:
    def last_day(at: datetime.date) -> datetime.date:
        return at.replace(day=calendar.monthrange(at.year, at.month)[1])

    return _date_task(draw, draw.randint(4, 6), "the last day of the month of each Date", last_day, "=EOMONTH(B2,0)")


def hours_worked(draw: random.Random) -> Task:
    count = draw.randint(4, 6)
    area, target = f"D2:D{count + 1}", f"D{count + 3}"

    def inputs(source: random.Random) -> Sheets:
        rows = []
        for name in source.sample(FIRST, count):
            began, minutes = source.randint(24, 44) * 15, source.randint(8, 36) * 15
            rows.append([name, _clock(began), _clock(began + minutes)])
        return {"Week": table([("Name", "From", "To"), *rows])}

    def answer(sheets: Sheets) -> Sheets:
        cells = sheets["Week"]
        times = [[number_of(cells[f"{letter}{n}"]) or 0 for letter in "BC"] for n in range(2, count + 2)]
        hours = [24 * (ended - began) for began, ended in times]
        return {"Week": {f"D{n}": value for n, value in enumerate(hours, 2)} | {target: sum(hours)}}

    return formula_task(
        draw,
        f"Fill {area} with the hours that each person worked, as a number, and put their sum in {target}.",
        inputs,
        answer,
        [put(area, "=(C2-B2)*24"), put(target, f"=SUM({area})")],
        f"{area}, {target}",
    )


def _clock(minutes: int) -> dict[str, str]:
    """A time of day as a cell's value."""
    return {"time": f"{minutes // 60:02}:{minutes % 60:02}:00"}


def names(draw: random.Random) -> Task:
    count, short = draw.randint(4, 6), draw.random() < 0.5
    area = f"C2:C{count + 1}"

    def inputs(source: random.Random) -> Sheets:
        rows = zip(source.sample(FIRST, count), source.sample(LAST, count), strict=True)
        return {"People": table([("First", "Last"), *rows])}

    def joined(first: str, last: str) -> str:
        return f"{first[0]}. {last.upper()}" if short else f"{last}, {first}"

    initial = "the first letter of First, a dot, a space and Last in capitals"
    asked = initial if short else "Last, a comma, a space and First"
    return cells_task(
        draw,
        f"Fill {area} with {asked}, as in {joined('Mary', 'Poole')}.",
        inputs,
        lambda sheets, row: joined(sheets["People"][f"A{row}"], sheets["People"][f"B{row}"]),
        '=LEFT(A2,1)&". "&UPPER(B2)' if short else '=B2&", "&A2',
        area,
        sheet="People",
    )


def blanks(draw: random.Random) -> Task:
    count = draw.randint(6, 9)
    last = count + 1

    def inputs(source: random.Random) -> Sheets:
        amounts: list[int | None] = [source.randint(10, 900) for _ in range(count)]
        for at in source.sample(range(count), source.randint(1, 4)):
            amounts[at] = None
        rows = [[source.choice(ITEMS), amount] for amount in amounts]
        return {"Orders": table([("Item", "Amount"), *rows])}

    def answer(sheets: Sheets) -> Sheets:
        found = [sheets["Orders"].get(f"B{n}") for n in range(2, last + 1)]
        known = [each for each in found if each is not None]
        return {"Orders": {"D1": found.count(None), "D2": sum(known) / len(known)}}

    def one_fewer(row: int, sheets: Sheets) -> Sheets:
        right = answer(sheets)["Orders"]
        return {"Orders": {**right, "D1": right["D1"] - (f"B{row}" not in sheets["Orders"])}}

    return formula_task(
        draw,
        f"Some cells of B2:B{last} are blank. Put their number in D1, and the average of the others in D2.",
        inputs,
        answer,
        [put("D1", f"=COUNTBLANK(B2:B{last})"), put("D2", f"=AVERAGE(B2:B{last})")],
        "D1:D2",
        rivals=[partial(one_fewer, row) for row in range(2, last + 1)],
    )
