"""What a text typed into a cell becomes, as in a spreadsheet program: `12%`, `=A1+B1`, `2024-03-05`, `8:30`, `'12`."""

from __future__ import annotations

import datetime
import re
from typing import Any

from openpyxl.utils import FORMULAE

from .formulas import NEWER

_NUMBER = re.compile(r"[-+]?\$?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?%?")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_US_DATE = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})")
_CALL = re.compile(r'("[^"]*(?:""[^"]*)*")|(?<![A-Za-z0-9_.])([A-Za-z][A-Za-z0-9.]*)(?=\()')
_SHEET_FUNCTIONS = {"FILTER", "SORT"}


def read_typed(value: Any) -> tuple[Any, str]:
    """What a typed text means, and the number format that goes with it, if any."""
    if not isinstance(value, str):
        return value, ""
    text = value.strip()
    if text.startswith("=") and len(text) > 1:
        return prefixed(text), ""
    if text.startswith("'"):
        return text[1:], "@"
    if any(letter.isdigit() for letter in text) and (found := _read_figure(text)) is not None:
        return found
    if text.upper() in ("TRUE", "FALSE"):
        return text.upper() == "TRUE", ""
    return (text or None), ""


def _read_figure(text: str) -> tuple[Any, str] | None:
    """A number, a date or a time."""
    if _NUMBER.fullmatch(text):
        number = float(text.translate({ord(mark): None for mark in "$,%"}))
        percent = text.endswith("%")
        exact: float = int(number) if number.is_integer() and abs(number) < 1e15 and not percent else number
        return (number / 100, "0%") if percent else (exact, "")
    try:
        if found := _TIME.fullmatch(text):
            return datetime.time(int(found[1]), int(found[2]), int(found[3] or 0)), "hh:mm:ss"
        if found := _US_DATE.fullmatch(text):
            return datetime.datetime(int(found[3]), int(found[1]), int(found[2])), "yyyy-mm-dd"
        if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            moment = datetime.datetime.fromisoformat(text)
            return moment, "yyyy-mm-dd" if moment.time() == datetime.time() else "yyyy-mm-dd hh:mm:ss"
    except ValueError:
        return None
    return None


def prefixed(formula: str) -> str:
    """The formula as it stands in a file, where the names of newer functions have a prefix."""

    def name(found: re.Match[str]) -> str:
        word = (found[2] or "").upper()
        if word not in NEWER or word in FORMULAE:
            return found[0]
        return f"_xlfn.{'_xlws.' if word in _SHEET_FUNCTIONS else ''}{word}"

    return _CALL.sub(name, formula)
