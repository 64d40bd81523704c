"""One request, one result: `request.json` and `book.xlsx` in the working directory, and `result.json`.

do        with                       result
dump      compact, most              {"text"}
get       area                       {"text"}
edit      area, value                {"text"}; the workbook is changed
read      cells, cases, styles       {"cells", "formulas", "styles", "cases"}: what a reward looks at
expect    position                   {"cells", "volatile"}: what an answer workbook holds

What the caller got wrong is {"error": text}.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from typing import Any

import openpyxl
from openpyxl.cell import MergedCell
from openpyxl.formula.translate import Translator
from openpyxl.utils.exceptions import InvalidFileException

from . import dump, formulas
from .engine import Place, Recalculated, sheet_named
from .ranges import Area, cell_name, parse_area, parse_areas
from .typed_values import read_typed
from .values import Value, as_json

BOOK, REQUEST, RESULT = "book.xlsx", "request.json", "result.json"


def main() -> None:
    with open(REQUEST, encoding="utf-8") as file:
        request = json.load(file)
    try:
        result = _OPERATIONS[request.pop("do")](**request)
    except ValueError as error:
        result = {"error": str(error)}
    except (zipfile.BadZipFile, InvalidFileException, KeyError, OSError) as error:
        result = {"error": f"the workbook cannot be opened ({type(error).__name__}: {error})"}
    with open(RESULT, "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=False)


def _opened(path: str = BOOK) -> Recalculated:
    book = openpyxl.load_workbook(path)
    if not book.worksheets:
        raise ValueError("the workbook has no sheets")
    return Recalculated(path, book)


def _dump(compact: bool, most: int) -> dict[str, Any]:
    return {"text": dump.workbook_text(_opened(), compact=compact, most=most)}


def _get(area: str, most: int) -> dict[str, Any]:
    found = _opened()
    sheet, cells = _placed(found.book, parse_area(area), most)
    return {"text": dump.area_text(found, sheet, cells)}


def _placed(book: openpyxl.Workbook, area: Area, most: int) -> tuple[str, Area]:
    """The sheet and the closed area; ValueError when there is no such sheet, or too many cells."""
    sheet = sheet_named(book, area.sheet)
    if sheet is None:
        raise ValueError(f"there is no sheet {area.sheet!r}. The sheets are: {', '.join(book.sheetnames)}.")
    closed = area.clipped(book[sheet].max_row, book[sheet].max_column)
    if closed.size > most:
        raise ValueError(f"{closed.size} cells are too many; the most is {most}. Name fewer.")
    return sheet, closed


def _edit(area: str, value: Any, most: int, shown: int) -> dict[str, Any]:
    before = openpyxl.load_workbook(BOOK)
    sheet, cells = _placed(before, parse_area(area), most)
    written = _write(before, sheet, cells, value)
    before.save(BOOK)
    found = Recalculated(BOOK, before)
    if found.value((sheet, cells.top, cells.left)) == {"error": "#ERROR!"}:
        raise ValueError(f"the formula {value} cannot be read. Check its brackets and commas.")
    lines = [f"{name}: {_shown(found, sheet, name)}" for name in written[:shown]]
    return {"text": "\n".join(lines + ["…"] * (len(written) > shown))}


def _write(book: openpyxl.Workbook, sheet: str, area: Area, value: Any) -> list[str]:
    """Put a value into every cell of an area, a formula with references that move along; returns the cells' names."""
    typed, shape = read_typed(value)
    first = cell_name(area.top, area.left)
    written: list[str] = []
    for row, column in area.cells():
        cell = book[sheet].cell(row, column)
        if isinstance(cell, MergedCell):
            raise ValueError(f"{cell.coordinate} is inside of a merged cell. Write to its first cell.")
        moved = isinstance(typed, str) and typed.startswith("=") and len(written) > 0
        cell.value = Translator(typed, first).translate_formula(cell.coordinate) if moved else typed
        if isinstance(typed, str) and shape == "@":
            cell.data_type = "s"
        if shape:
            cell.number_format = shape
        written.append(cell.coordinate)
    return written


def _shown(found: Recalculated, sheet: str, name: str) -> str:
    cell = found.book[sheet][name]
    place: Place = (sheet, cell.row, cell.column)
    return dump.cell_text(found.formula(place), found.dated(place))


# What a reward looks at

Cells = dict[str, dict[str, Any]]
"""By sheet and name."""


def _read(cells: dict[str, list[str]], cases: list[Cells], styles: bool) -> dict[str, Any]:
    found = _opened()
    read: dict[str, Any] = {
        "cells": _values(found, cells),
        "formulas": {sheet: [name for name in names if _formula(found, sheet, name)] for sheet, names in cells.items()},
        "styles": {sheet: {name: _styles(found, sheet, name) for name in names} for sheet, names in cells.items()}
        if styles
        else {},
        "cases": [],
    }
    for case in cases:
        changed = {_place(found, sheet, name): value for sheet, each in case.items() for name, value in each.items()}
        found.change({place: value for place, value in changed.items() if place is not None})
        read["cases"].append(_values(found, cells))
    return read


def _values(found: Recalculated, cells: dict[str, list[str]]) -> Cells:
    return {sheet: {name: _value(found, sheet, name) for name in names} for sheet, names in cells.items()}


def _place(found: Recalculated, sheet: str, name: str) -> Place | None:
    title, area = sheet_named(found.book, sheet), parse_area(name)
    return None if title is None else (title, area.top, area.left)


def _value(found: Recalculated, sheet: str, name: str) -> Value:
    place = _place(found, sheet, name)
    return {"error": f"there is no sheet {sheet!r}"} if place is None else found.value(place)


def _formula(found: Recalculated, sheet: str, name: str) -> bool:
    place = _place(found, sheet, name)
    return place is not None and found.formula(place) is not None


def _styles(found: Recalculated, sheet: str, name: str) -> list[str]:
    place = _place(found, sheet, name)
    return [] if place is None else dump.styles(found.cell(place))


def _expect(position: str, sheet: str | None, most: int) -> dict[str, Any]:
    found = _opened()
    kept = openpyxl.load_workbook(BOOK, data_only=True)
    cells: Cells = {}
    volatile: dict[str, list[str]] = {}
    for area in parse_areas(position):
        title, closed = _placed(found.book, area if area.sheet else area._replace(sheet=sheet), most)
        for row, column in closed.cells():
            place, name = (title, row, column), cell_name(row, column)
            cells.setdefault(title, {})[name] = _kept(found, kept, place)
            if formulas.functions(found.formula(place) or "") & formulas.VOLATILE:
                volatile.setdefault(title, []).append(name)
    return {"cells": cells, "volatile": volatile}


def _kept(found: Recalculated, kept: openpyxl.Workbook, place: Place) -> Value:
    """What the file says the value is, or where it says nothing, what it is when computed."""
    value = kept[place[0]].cell(place[1], place[2]).value
    if value is None and found.formula(place) is not None:
        return found.dated(place)
    if isinstance(value, str) and kept[place[0]].cell(place[1], place[2]).data_type == "e":
        return {"error": value}
    return as_json(value)


_OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "dump": _dump,
    "get": _get,
    "edit": _edit,
    "read": _read,
    "expect": _expect,
}
