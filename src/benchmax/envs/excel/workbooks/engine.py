"""A workbook's values after recalculation, and which of them are in doubt.

ironcalc computes every formula anew: the values that the file holds are not looked at. A formula that ironcalc is known
not to compute as Excel does is in doubt, and so is every formula that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ironcalc
from openpyxl import Workbook
from openpyxl.worksheet.formula import ArrayFormula, DataTableFormula

from . import formulas
from .ranges import Area
from .values import Value, as_json, from_serial, number_of

Place = tuple[str, int, int]
"""Sheet, row, column."""
_DIVISION = {"error": "#DIV/0!"}
"""What ironcalc also says of a power that is too large, where Excel says #NUM!."""


class Recalculated:
    """The values of a workbook. `path` is its file, `book` the same as read by openpyxl with formulas."""

    def __init__(self, path: str, book: Workbook) -> None:
        self.book = book
        self._model, self.problem = _load(path)
        sheets = [] if self._model is None else self._model.get_worksheets_properties()
        self._index: dict[str, int] = {each["name"]: number for number, each in enumerate(sheets)}
        if not all(sheet.title in self._index for sheet in book.worksheets):
            self._model, self.problem = None, self.problem or "it has sheets of another kind"
        self._formulas = dict(_formulas(book))
        self._changed: set[Place] = set()
        self._correct()
        self._doubts = self._in_doubt()

    def _correct(self) -> None:
        """Have ironcalc compute in another way what it is known to get wrong."""
        if self._model is None:
            return
        wrong = {place: right for place, each in self._formulas.items() if (right := formulas.corrected(each)) != each}
        for place, formula in wrong.items():
            self._model.update_cell_with_formula(*self._at(place), formula)
        if wrong:
            self._model.evaluate()

    def cell(self, place: Place) -> Any:
        sheet, row, column = place
        return self.book[sheet].cell(row, column)

    def formula(self, place: Place) -> str | None:
        return self._formulas.get(place)

    def change(self, cells: dict[Place, Any]) -> None:
        """Put other values into cells of the workbook as it was at first, and compute again."""
        if self._model is None:
            return
        undone = {place: self._original(place) for place in self._changed if place not in cells}
        for place, value in {**undone, **cells}.items():
            _put(self._model, self._at(place), value)
        self._changed = set(cells)
        self._model.evaluate()
        if any(map(formulas.only_powers_divide, self._formulas.values())):
            self._doubts = self._in_doubt()

    def _original(self, place: Place) -> Any:
        formula = self._formulas.get(place)
        return as_json(self.cell(place).value) if formula is None else formula

    def value(self, place: Place) -> Value:
        if place in self._doubts:
            return {"unknown": self._doubts[place]}
        cell = self.cell(place)
        untouched = place not in self._formulas and place not in self._changed
        if untouched and (cell.value is not None or self._model is None):
            return {"error": cell.value} if cell.data_type == "e" else as_json(cell.value)
        if self._model is None:
            return {"unknown": f"the workbook cannot be computed here ({self.problem})"}
        return self._computed(place)

    def _computed(self, place: Place) -> Value:
        if self._model is None:
            return None
        value: Value = self._model.get_cell_value(*self._at(place))
        if not isinstance(value, str) or not value.startswith("#"):
            return value
        if self._model.get_cell_type(*self._at(place)) != ironcalc.CellType.ErrorValue:
            return value
        return {"unknown": "it is not computed here"} if value == "#N/IMPL!" else {"error": value}

    def _at(self, place: Place) -> tuple[int, int, int]:
        """Where ironcalc has it."""
        return self._index[place[0]], place[1], place[2]

    def dated(self, place: Place) -> Value:
        """The value, with numbers that are shown as dates or times as such."""
        value = self.value(place)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if not self.cell(place).is_date or not 0 <= value < 2_958_466:
            return value
        moment = from_serial(value)
        return {"time": moment.time().isoformat()} if value < 1 else {"date": moment.isoformat(timespec="seconds")}

    # Doubts

    def _in_doubt(self) -> dict[Place, str]:
        """Formulas in doubt by themselves; without any, nothing depends on one."""
        found = {}
        for place, formula in self._formulas.items():
            reason = formulas.doubt(formula, self._as_read(place, formula))
            if reason is None and formulas.only_powers_divide(formula) and self._computed(place) == _DIVISION:
                reason = "a power that is too large is not told from a division by zero here"
            if reason is not None:
                found[place] = reason
        return self._spread(found) if found else {}

    def _as_read(self, place: Place, formula: str) -> str:
        if self._model is None or isinstance(self.cell(place).value, ArrayFormula):
            return formula
        return str(self._model.get_cell_content(*self._at(place)))

    def _spread(self, found: dict[Place, str]) -> dict[Place, str]:
        """Those and all formulas that depend on them."""
        uses = {place: self._uses(place[0], formula) for place, formula in self._formulas.items() if place not in found}
        spreading = True
        while spreading:
            spreading = False
            for place, areas in list(uses.items()):
                if areas is None or any(_touches(areas, each) for each in found):
                    reason = next(iter(found.values()))
                    found[place] = f"it depends on a formula of which {reason}"
                    del uses[place]
                    spreading = True
        return found

    def _uses(self, sheet: str, formula: str) -> list[Area] | None:
        """Areas that a formula depends on; None when its text does not say."""
        if formulas.functions(formula) & formulas.DYNAMIC:
            return None
        named, known = formulas.names(formula), self.book.defined_names.items()
        texts = [formula, *(str(each.value or "") for name, each in known if name.casefold() in named)]
        found = (area for text in texts for area in formulas.references(text))
        return [area._replace(sheet=sheet_named(self.book, area.sheet) if area.sheet else sheet) for area in found]


def sheet_named(book: Workbook, name: str | None) -> str | None:
    """The title of a sheet, whatever the capitals of its name; the first when that is None."""
    titles: list[str] = [sheet.title for sheet in book.worksheets]
    if name is None:
        return titles[0]
    return next((title for title in titles if title.casefold() == name.casefold()), None)


def _touches(areas: list[Area], place: Place) -> bool:
    sheet, row, column = place
    return any(
        area.sheet == sheet
        and area.top <= row <= (area.bottom or row)
        and area.left <= column <= (area.right or column)
        for area in areas
    )


def _load(path: str) -> tuple[Any, str]:
    try:
        model = ironcalc.load_from_xlsx(path, "en", "UTC", "en")
        model.evaluate()
        return model, ""
    except BaseException as error:  # a panic is no Exception
        return None, f"{type(error).__name__}: {error}"


def _formulas(book: Workbook) -> Iterator[tuple[Place, str]]:
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    yield (sheet.title, cell.row, cell.column), _text(cell.value)


def _text(value: Any) -> str:
    if isinstance(value, ArrayFormula):
        return str(value.text)
    return "=TABLE()" if isinstance(value, DataTableFormula) else str(value)


def _put(model: Any, at: tuple[int, int, int], value: Any) -> None:
    if value is None:
        model.clear_cell_contents(*at)
    elif isinstance(value, bool):
        model.update_cell_with_bool(*at, value)
    elif (number := number_of(value)) is not None:
        model.update_cell_with_number(*at, number)
    elif isinstance(value, str) and value.startswith("="):
        model.update_cell_with_formula(*at, value)
    else:
        model.update_cell_with_text(*at, str(value))
