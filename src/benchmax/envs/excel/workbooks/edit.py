"""Writing into cells of a workbook."""

from __future__ import annotations

from typing import Any

from openpyxl import Workbook
from openpyxl.cell import MergedCell
from openpyxl.formula.translate import Translator

from .ranges import Area, cell_name
from .typed_values import read_typed


def write(book: Workbook, sheet: str, area: Area, value: Any) -> list[str]:
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
