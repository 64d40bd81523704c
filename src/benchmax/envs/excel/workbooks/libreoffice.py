"""A warm LibreOffice that recalculates workbooks: a program for a Python that has `uno`, on standard input and output.

A request is a line of JSON with `size`, `cells` and `cases` as in `operations.read`, then the workbook's bytes; the
answer is a line of JSON with `cells` and `cases`. It imports nothing but the standard library and uno.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

BOOK = "second.xlsx"
_START_SECONDS = 60.0
_ERRORS = {
    502: "#NUM!", 503: "#NUM!", 519: "#VALUE!", 522: "#CIRC!", 523: "#NUM!", 524: "#REF!", 532: "#DIV/0!",
    32767: "#N/A",
}  # fmt: skip
"""By LibreOffice's number; of others, such as a name it does not know, nothing can be said."""


def main() -> None:
    desktop = _connected(_start())
    _send({"ready": True})
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        with open(BOOK, "wb") as file:
            file.write(sys.stdin.buffer.read(request["size"]))
        try:
            answer = _answer(desktop, request["cells"], request["cases"])
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        _send(answer)


def _send(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _start() -> str:
    name = f"benchmax{os.getpid()}"
    subprocess.Popen(
        ["soffice", "--headless", "--norestore", "--nologo", "--nodefault", f"--accept=pipe,name={name};urp;"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return name


def _connected(name: str) -> Any:
    import uno

    context = uno.getComponentContext()
    resolver = context.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", context)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            remote = resolver.resolve(f"uno:pipe,name={name};urp;StarOffice.ComponentContext")
            return remote.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", remote)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _answer(desktop: Any, cells: dict[str, list[str]], cases: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    book = _opened(desktop)
    try:
        book.calculateAll()
        answer: dict[str, Any] = {"cells": _values(book, cells), "cases": []}
        for case in cases:
            book.close(True)
            book = _opened(desktop)
            _change(book, case)
            book.calculateAll()
            answer["cases"].append(_values(book, cells))
        return answer
    finally:
        book.close(True)


def _opened(desktop: Any) -> Any:
    from com.sun.star.beans import PropertyValue

    hidden, macros = PropertyValue(), PropertyValue()
    hidden.Name, hidden.Value = "Hidden", True
    macros.Name, macros.Value = "MacroExecutionMode", 0
    book = desktop.loadComponentFromURL(f"file://{os.path.abspath(BOOK)}", "_blank", 0, (hidden, macros))
    if book is None:
        raise ValueError("the workbook cannot be opened")
    return book


def _values(book: Any, cells: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    return {
        sheet: {name: _value(book.Sheets.getByName(sheet).getCellRangeByName(name)) for name in names}
        for sheet, names in cells.items()
        if book.Sheets.hasByName(sheet)
    }


def _value(cell: Any) -> Any:
    kind = cell.Type.value
    if kind == "EMPTY":
        return None
    if code := cell.getError():
        return {"error": _ERRORS[code]} if code in _ERRORS else {"unknown": "LibreOffice cannot compute it"}
    text: str = cell.String
    if kind == "TEXT" or (kind == "FORMULA" and cell.FormulaResultType2 == 2):
        return text
    number: float = cell.Value
    return text == "TRUE" if text in ("TRUE", "FALSE") and number in (0.0, 1.0) else number


def _change(book: Any, case: dict[str, dict[str, Any]]) -> None:
    from datetime import datetime

    for sheet, changes in case.items():
        for name, value in changes.items():
            cell = book.Sheets.getByName(sheet).getCellRangeByName(name)
            if isinstance(value, dict) and "date" in value:
                since = datetime.fromisoformat(value["date"]) - datetime(1899, 12, 30)
                value = since.total_seconds() / 86_400
            elif isinstance(value, dict) and "time" in value:
                hours, minutes, seconds = (float(part) for part in value["time"].split(":"))
                value = (hours * 3600 + minutes * 60 + seconds) / 86_400
            if value is None:
                cell.setFormula("")
            elif isinstance(value, bool | int | float):
                cell.setValue(float(value))
            else:
                cell.setString(str(value))


if __name__ == "__main__":
    main()
