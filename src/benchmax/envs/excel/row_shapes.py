"""From a row to an example, and from a row's cells to a workbook.

A row has either `sheets` (cells, as the generated ones) or `workbook` (a file, in base64); what is right is in
`expected`. An example's task and prompt depend on neither the machine nor the bytes of the file.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.excel.workbooks.dump import cell_text, sheet_text
from benchmax.envs.excel.workbooks.ranges import parse_area

EMPTY: dict[str, dict[str, Any]] = {"Sheet1": {}}
SOURCES = ("sheets", "workbook", "input_src_path")
_HEADS = (
    "Instruction", "Spreadsheet Path", "Spreadsheet Content", "Instruction Type", "Answer Position", "Output Path",
)  # fmt: skip


def short_prompt(row: Mapping[str, Any]) -> str:
    """The workbook, then what is asked."""
    return f"{sheets_text(row['sheets'])}\n{row['instruction']}"


def full_prompt(row: Mapping[str, Any], source: str, output: str) -> str:
    """What is asked, under the headings of SpreadsheetBench; without the content where the row has only a file."""
    content = row.get("content") or (sheets_text(row["sheets"], named=True) if row.get("sheets") else None)
    kind = row.get("instruction_type") or "Sheet-Level Manipulation"
    parts = (row["instruction"], source, content, kind, row["answer_position"], output)
    return "\n".join(f"{head}: {part}" for head, part in zip(_HEADS, parts, strict=True) if part is not None)


def sheets_text(sheets: Mapping[str, Mapping[str, Any]], *, named: bool = False) -> str:
    """Cells as text, as a dump of their workbook would be; a lone sheet without its name, unless that is wanted."""
    texts = [
        sheet_text(title, sorted(_shown(cells)), compact=True, most=limits.EXCEL_DUMP_CHARS)
        for title, cells in sheets.items()
    ]
    return "\n".join(texts) if named or len(texts) > 1 else texts[0].partition("\n")[2]


def _shown(cells: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    places = ((parse_area(name), value) for name, value in cells.items())
    return [(place.top, place.left, _cell(value)) for place, value in places]


def _cell(value: Any) -> str:
    if isinstance(value, dict) and "formula" in value:
        return cell_text(value["formula"], value["value"])
    return cell_text(None, value)


def workbook_of(given: Mapping[str, Any]) -> bytes:
    """The workbook of a row's `workbook`, `sheets` or `input_src_path`; an empty one without any."""
    if given.get("workbook"):
        return base64.b64decode(given["workbook"])
    if given.get("sheets"):
        return _built(json.dumps(given["sheets"]))
    if given.get("input_src_path"):
        return Path(given["input_src_path"]).read_bytes()
    return _built(json.dumps(EMPTY))


@lru_cache(maxsize=256)
def _built(sheets: str) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, cells in json.loads(sheets).items():
        sheet = book.create_sheet(title)
        for name, value in cells.items():
            sheet[name] = _typed(value)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def _typed(value: Any) -> Any:
    match value:
        case {"formula": formula}:
            return formula
        case {"date": date}:
            moment = datetime.datetime.fromisoformat(date)
            return moment.date() if moment.time() == datetime.time() else moment
        case {"time": time}:
            return datetime.time.fromisoformat(time)
        case {"error": error}:
            return error
    return value
