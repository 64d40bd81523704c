"""Cells named by text: `A1`, `$B$2:C9`, `'My Sheet'!A:C`, several with commas between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_ROWS, MOST_COLUMNS = 1_048_576, 16_384
_CELLS = re.compile(
    r"\$?(?P<left>[A-Za-z]{1,3})?\$?(?P<top>[0-9]{1,7})?(?P<range>:\$?(?P<right>[A-Za-z]{1,3})?\$?(?P<bottom>[0-9]{1,7})?)?"
)


class Area(NamedTuple):
    """A rectangle of cells; a side of None is open, as in `A:C` or `2:4`."""

    sheet: str | None
    top: int
    left: int
    bottom: int | None
    right: int | None

    def clipped(self, rows: int, columns: int) -> Area:
        """The area with its open sides at these bounds."""
        bottom = max(rows, self.top) if self.bottom is None else self.bottom
        right = max(columns, self.left) if self.right is None else self.right
        return self._replace(bottom=bottom, right=right)

    @property
    def size(self) -> int:
        return ((self.bottom or MOST_ROWS) - self.top + 1) * ((self.right or MOST_COLUMNS) - self.left + 1)

    def cells(self) -> Iterator[tuple[int, int]]:
        """Rows and columns, row by row."""
        for row in range(self.top, (self.bottom or MOST_ROWS) + 1):
            for column in range(self.left, (self.right or MOST_COLUMNS) + 1):
                yield row, column


def parse_areas(text: str) -> list[Area]:
    """Every area of a text such as `A1, 'My Sheet'!B2:C3`; raises ValueError for anything else."""
    return [parse_area(piece) for piece in _pieces(text)]


def parse_area(text: str) -> Area:
    sheet, mark, cells = text.strip().rpartition("!")
    name = sheet.strip().strip("'").replace("''", "'") if mark else None
    found = _CELLS.fullmatch(cells.strip().strip("'").strip())
    if found is None or name == "" or not (found["left"] or found["top"]):
        raise ValueError(f"{text.strip()!r} names no cells. Write A1, A1:B2 or 'Sheet name'!A1:B2.")
    top, left, bottom, right = _sides(found, text)
    return Area(name, top, left, bottom, right)


def _sides(found: re.Match[str], text: str) -> tuple[int, int, int | None, int | None]:
    if not found["range"]:
        if not (found["left"] and found["top"]):
            raise ValueError(f"{text.strip()!r} names no cell. Write A1, or A:A for a column.")
        row, column = _row(found["top"]), column_number(found["left"])
        return row, column, row, column
    columns = _ordered(found["left"], found["right"], column_number, text)
    rows = _ordered(found["top"], found["bottom"], _row, text)
    if rows[1] is None and columns[1] is None:
        raise ValueError(f"{text.strip()!r} names no cells. Write A1:B2.")
    return rows[0], columns[0], rows[1], columns[1]


def _ordered(first: str | None, last: str | None, number: object, text: str) -> tuple[int, int | None]:
    assert callable(number)
    if first is None and last is None:
        return 1, None
    if first is None or last is None:
        raise ValueError(f"{text.strip()!r} is half a range. Write A1:B2, A:B or 1:2.")
    low, high = sorted((number(first), number(last)))
    return low, high


def _pieces(text: str) -> list[str]:
    """Split at commas that are in no quoted name; a quote that is never closed quotes nothing."""
    parts = text.split("'") if text.count("'") % 2 == 0 else [text]
    marked = "'".join(part.replace(",", "\0") if n % 2 == 0 else part for n, part in enumerate(parts))
    pieces = [piece.strip() for piece in marked.split("\0") if piece.strip()]
    if not pieces:
        raise ValueError("There are no cells in an empty text. Write A1 or A1:B2.")
    return pieces


def _row(text: str) -> int:
    if not 1 <= int(text) <= MOST_ROWS:
        raise ValueError(f"There is no row {text}. The last is {MOST_ROWS}.")
    return int(text)


def column_number(letters: str) -> int:
    """1 for A, 27 for AA."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    if number > MOST_COLUMNS:
        raise ValueError(f"There is no column {letters}. The last is XFD.")
    return number


def column_letters(number: int) -> str:
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def cell_name(row: int, column: int) -> str:
    return f"{column_letters(column)}{row}"
