"""A workbook as text for a model: one cell a line and a blank line after each row, or compactly one row a line.

Sheet Name: Prices
A1: Item [bold]
B1: Price

A2: pen
B2: =1+0.5 -> 1.5
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .ranges import Area, cell_name
from .values import Value, shown

if TYPE_CHECKING:
    from .engine import Place, Recalculated

_PREFIX = re.compile(r"_xl(?:fn|ws|pm)\.", re.IGNORECASE)
CUT = "… (cut: the rest is not shown)"


def workbook_text(found: Recalculated, *, compact: bool, most: int) -> str:
    """All sheets, cut after `most` characters."""
    parts = []
    for sheet in found.book.worksheets:
        cells = (
            (cell.row, cell.column, text) for row in sheet.iter_rows() for cell in row if (text := _cell(found, cell))
        )
        parts.append(sheet_text(sheet.title, cells, compact=compact, most=most))
        most -= len(parts[-1])
        if most <= 0:
            break
    return "\n".join(parts).rstrip("\n")


def sheet_text(title: str, cells: Iterable[tuple[int, int, str]], *, compact: bool, most: int) -> str:
    """One sheet, from rows, columns and texts in the order of rows."""
    lines, left = [f"Sheet Name: {title}"], most
    for line in _lines(cells, compact):
        lines.append(line)
        left -= len(line) + 1
        if left <= 0:
            return "\n".join([*lines[:-1], line[: max(0, left + len(line))] + CUT])
    return "\n".join(lines)


def area_text(found: Recalculated, sheet: str, area: Area) -> str:
    """The cells of an area that hold anything, one a line."""
    cells = (found.book[sheet].cell(row, column) for row, column in area.cells())
    texts = [f"{cell.coordinate}: {text}" for cell in cells if (text := _cell(found, cell))]
    return "\n".join(texts) or "empty"


def _lines(cells: Iterable[tuple[int, int, str]], compact: bool) -> Iterator[str]:
    for _, row in groupby(cells, key=lambda each: each[0]):
        texts = [f"{cell_name(at, column)}: {text}" for at, column, text in row]
        yield from [" | ".join(texts)] if compact else [*texts, ""]


def _cell(found: Recalculated, cell: Any) -> str:
    """What stands in a cell; an empty text for one that shows nothing."""
    marks = styles(cell)
    place: Place = (cell.parent.title, cell.row, cell.column)
    formula = found.formula(place)
    if formula is None and cell.value is None:
        return f"null [{', '.join(marks)}]" if any(mark.startswith("bg:") for mark in marks) else ""
    text = cell_text(formula, found.dated(place))
    return f"{text} [{', '.join(marks)}]" if marks else text


def cell_text(formula: str | None, value: Value) -> str:
    if formula is None:
        return shown(value)
    if isinstance(value, dict) and "unknown" in value:
        return f"{_PREFIX.sub('', formula)} -> ?"
    return f"{_PREFIX.sub('', formula)} -> {shown(value)}"


def styles(cell: Any) -> list[str]:
    """Colours and emphasis of a cell."""
    if not cell.has_style:
        return []
    font, fill = cell.font, cell.fill
    background = _rgb(fill.fgColor) if fill is not None and fill.fill_type == "solid" else None
    colour = _rgb(font.color) if font is not None else None
    marks = [f"bg:{background}" if background else "", f"color:{colour}" if colour and colour != "000000" else ""]
    marks += [name for name, given in (("bold", font.b), ("italic", font.i), ("underline", font.u)) if given]
    return [mark for mark in marks if mark]


def _rgb(colour: Any) -> str | None:
    """Red, green and blue; None without a colour, or with one of the theme."""
    rgb = getattr(colour, "rgb", None)
    return rgb[-6:].upper() if isinstance(rgb, str) and colour.type == "rgb" and rgb != "00000000" else None
