"""Whole sheets changed by code: rows sorted, removed and joined, texts made into values, cells coloured.

The answer is values of the right type; formulas are not required. What is expected is computed here from the cells, the
solution works on the workbook, and the two share nothing.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmax.envs.excel.levels.distinguishing_inputs import Sheets
from benchmax.envs.excel.levels.task import Task, table
from benchmax.envs.excel.levels.words import FIRST, ITEMS, LAST, REGIONS, date, day, items
from benchmax.envs.excel.workbooks.ranges import cell_name

SHEET = "Data"
_OPEN = "import openpyxl\nbook = openpyxl.load_workbook('input.xlsx')\nsheet = book['Data']\n"
_SAVE = "book.save('output.xlsx')\n"
YELLOW = "FFFF00"


def _task(
    instruction: str,
    rows: Sequence[Sequence[Any]],
    expected: Mapping[str, Any],
    code: str,
    *,
    sheet: str = SHEET,
    others: Sheets | None = None,
    styles: Mapping[str, Sequence[str]] | None = None,
) -> Task:
    """`expected` are the cells of one area, its first and its last at the ends."""
    call = ("run_excel_code", {"python_code": _OPEN + code + _SAVE, "output_excel_path": "output.xlsx"})
    first, *_, last = expected
    position = f"'{sheet}'!{first}:{last}"
    sheets = {SHEET: table(rows), **(others or {})}
    return Task(instruction, sheets, {sheet: dict(expected)}, [call], position, (), {SHEET: styles} if styles else None)


def _area(rows: Sequence[Sequence[Any]], height: int = 0, left: int = 1) -> dict[str, Any]:
    """Expected cells of an area at least so high, blank where there are no rows any more."""
    width = len(rows[0])
    padded = [*rows, *[[None] * width] * (height - len(rows))]
    return {cell_name(r, left + c): value for r, row in enumerate(padded, 1) for c, value in enumerate(row)}


def _column(letter: str, values: Iterable[Any]) -> dict[str, Any]:
    """Expected cells of a column below its header."""
    return {f"{letter}{n}": value for n, value in enumerate(values, 2)}


def _orders(draw: random.Random, count: int) -> list[list[Any]]:
    amounts = draw.sample(range(10, 900), count)
    return [[item, draw.choice(REGIONS), amount] for item, amount in zip(items(draw, count), amounts, strict=True)]


_HEADER = ["Item", "Region", "Amount"]


def sort_rows(draw: random.Random) -> Task:
    rows, down = _orders(draw, draw.randint(5, 9)), draw.random() < 0.5
    wanted = sorted(rows, key=lambda row: row[2], reverse=down)
    if wanted == rows:
        rows = rows[::-1]
    return _task(
        f"Sort the rows of the table on the sheet Data by Amount, the {'largest' if down else 'smallest'} first. "
        "The header stays where it is.",
        [_HEADER, *rows],
        _area([_HEADER, *wanted]),
        "rows = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=2)]\n"
        f"rows.sort(key=lambda row: row[2], reverse={down})\n"
        "for r, row in enumerate(rows, 2):\n    for c, value in enumerate(row, 1):\n"
        "        sheet.cell(r, c).value = value\n",
    )


def remove_duplicates(draw: random.Random) -> Task:
    rows = _orders(draw, draw.randint(5, 8))
    doubled = rows + [draw.choice(rows) for _ in range(draw.randint(1, 3))]
    draw.shuffle(doubled)
    wanted = [row for at, row in enumerate(doubled) if row not in doubled[:at]]
    return _task(
        "Remove every row of the table on the sheet Data that repeats a row above it, and close the gaps.",
        [_HEADER, *doubled],
        _area([_HEADER, *wanted], height=len(doubled) + 1),
        "rows = list(dict.fromkeys(sheet.iter_rows(min_row=2, values_only=True)))\n"
        "sheet.delete_rows(2, sheet.max_row)\nfor row in rows:\n    sheet.append(row)\n",
    )


def remove_incomplete(draw: random.Random) -> Task:
    rows = _orders(draw, draw.randint(6, 9))
    for at in draw.sample(range(len(rows)), draw.randint(1, 3)):
        rows[at][draw.choice((1, 2))] = None
    wanted = [row for row in rows if None not in row]
    return _task(
        "Remove every row of the table on the sheet Data in which a cell is blank, and close the gaps.",
        [_HEADER, *rows],
        _area([_HEADER, *wanted], height=len(rows) + 1),
        "for n in range(sheet.max_row, 1, -1):\n    if any(sheet.cell(n, c).value is None for c in (1, 2, 3)):\n"
        "        sheet.delete_rows(n)\n",
    )


def summary(draw: random.Random) -> Task:
    rows = _orders(draw, draw.randint(6, 9))
    regions = sorted({row[1] for row in rows})
    wanted = [["Region", "Total"], *([name, sum(row[2] for row in rows if row[1] == name)] for name in regions)]
    return _task(
        "Make a new sheet Summary. Its header is Region and Total; below, one row for each Region of the sheet Data in "
        "alphabetical order, with the sum of its Amount.",
        [_HEADER, *rows],
        _area(wanted),
        "totals = {}\nfor item, region, amount in sheet.iter_rows(min_row=2, values_only=True):\n"
        "    totals[region] = totals.get(region, 0) + amount\n"
        "made = book.create_sheet('Summary')\nmade.append(['Region', 'Total'])\n"
        "for region in sorted(totals):\n    made.append([region, totals[region]])\n",
        sheet="Summary",
    )


def split_names(draw: random.Random) -> Task:
    count = draw.randint(5, 8)
    people = list(zip(draw.sample(FIRST, count), draw.sample(LAST, count), strict=True))
    last = count + 1
    return _task(
        f"Column A of the sheet Data holds names. Put first names in B2:B{last} and last names in C2:C{last}.",
        [["Name", "First", "Last"], *([f"{family}, {first}"] for first, family in people)],
        {f"{letter}{n}": name for n, pair in enumerate(people, 2) for letter, name in zip("BC", pair, strict=True)},
        f"for n in range(2, {last + 1}):\n    family, first = sheet.cell(n, 1).value.split(', ')\n"
        "    sheet.cell(n, 2).value, sheet.cell(n, 3).value = first, family\n",
    )


def real_dates(draw: random.Random) -> Task:
    days: list[datetime.date] = [day(draw) for _ in range(draw.randint(5, 8))]
    last = len(days) + 1
    return _task(
        f"Column B of the sheet Data holds dates as text, day first. Put them in C2:C{last} as dates.",
        [["Item", "Text", "Date"], *([draw.choice(ITEMS), each.strftime("%d.%m.%Y")] for each in days)],
        _column("C", map(date, days)),
        f"import datetime\nfor n in range(2, {last + 1}):\n"
        "    sheet.cell(n, 3).value = datetime.datetime.strptime(sheet.cell(n, 2).value, '%d.%m.%Y')\n",
    )


def real_numbers(draw: random.Random) -> Task:
    cents = [draw.randint(100_000, 9_999_999) for _ in range(draw.randint(5, 8))]
    last = len(cents) + 1
    return _task(
        f"Column B of the sheet Data holds amounts as text. Put them in C2:C{last} as numbers.",
        [["Item", "Text", "Amount"], *([draw.choice(ITEMS), f"{each / 100:,.2f} EUR"] for each in cents)],
        _column("C", (each / 100 for each in cents)),
        f"for n in range(2, {last + 1}):\n"
        "    sheet.cell(n, 3).value = float(sheet.cell(n, 2).value.replace(',', '').replace(' EUR', ''))\n",
    )


def highlight(draw: random.Random) -> Task:
    rows = _orders(draw, draw.randint(6, 9))
    least = sorted(row[2] for row in rows)[draw.randint(1, len(rows) - 2)]
    last = len(rows) + 1
    return _task(
        f"Colour those cells of C2:C{last} on the sheet Data that are more than {least} yellow ({YELLOW}).",
        [_HEADER, *rows],
        _column("C", (row[2] for row in rows)),
        "from openpyxl.styles import PatternFill\n"
        f"for n in range(2, {last + 1}):\n    if sheet.cell(n, 3).value > {least}:\n"
        f"        sheet.cell(n, 3).fill = PatternFill('solid', fgColor='{YELLOW}')\n",
        styles=_column("C", ([f"bg:{YELLOW}"] if row[2] > least else [] for row in rows)),
    )


def transpose(draw: random.Random) -> Task:
    rows = [_HEADER, *_orders(draw, draw.randint(4, 6))]
    turned = [list(column) for column in zip(*rows, strict=True)]
    return _task(
        "Write the table of the sheet Data with rows and columns exchanged, beginning at E1.",
        rows,
        _area(turned, left=5),
        "rows = list(sheet.iter_rows(max_col=3, values_only=True))\n"
        "for r, row in enumerate(rows):\n    for c, value in enumerate(row):\n"
        "        sheet.cell(1 + c, 5 + r).value = value\n",
    )


def join_sheets(draw: random.Random) -> Task:
    names = items(draw, draw.randint(5, 8))
    price = {name: draw.randint(5, 95) for name in names}
    orders = [(draw.choice(names), draw.randint(2, 20)) for _ in range(draw.randint(5, 8))]
    last = len(orders) + 1
    listed = sorted(price.items(), key=lambda each: draw.random())
    return _task(
        f"Put Units times the item's Price on the sheet Prices in C2:C{last} of the sheet Data.",
        [["Item", "Units", "Worth"], *orders],
        _column("C", (units * price[name] for name, units in orders)),
        "price = dict(book['Prices'].iter_rows(min_row=2, values_only=True))\n"
        f"for n in range(2, {last + 1}):\n"
        "    sheet.cell(n, 3).value = sheet.cell(n, 2).value * price[sheet.cell(n, 1).value]\n",
        others={"Prices": table([("Item", "Price"), *listed])},
    )
