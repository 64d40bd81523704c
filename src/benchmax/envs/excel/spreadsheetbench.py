"""SpreadsheetBench, in its published shape: a folder with `dataset.json` and workbooks.

    dataset.json      [{"id", "instruction", "spreadsheet_path", "instruction_type", "answer_position"}, …]
    spreadsheet/ID/   1_ID_input.xlsx and 1_ID_answer.xlsx; in the verified set 1_ID_init.xlsx and 1_ID_golden.xlsx

Every row becomes one that stands for itself: the input as text and as a file, and the cells that are expected. Rows
that cannot be judged are left out, and so are those whose input already holds what is asked; a log line says how many.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.concurrency import all_or_cancel, run_sync
from benchmax.config import setting
from benchmax.envs.excel.reward import score_workbook
from benchmax.envs.excel.workbook_sandbox import WorkbookError, WorkbookSandbox
from benchmax.errors import NotFoundError, UsageError
from benchmax.sandbox.call import plain_name

logger = logging.getLogger(__name__)

NAME = "spreadsheetbench"
COLUMNS = ("id", "spreadsheet_path", "instruction", "instruction_type", "answer_position")
_CACHE = Path("~/.cache/excel_data")
_SETS = ("sample_data_200", "all_data_912_v0.1", "all_data_912", "spreadsheetbench_verified_400")
_INPUTS = ("1_{id}_input.xlsx", "1_{id}_init.xlsx", "initial.xlsx")
_ANSWERS = ("1_{id}_answer.xlsx", "1_{id}_golden.xlsx", "golden.xlsx")
LEVEL = "manipulation"
"""The level whose tools these rows need."""
_AT_ONCE = 8
_IN_ROW_BYTES = limits.ROW_BYTES // 2
"""The largest workbook that travels inside of its row; of a larger one the row has the path."""


def find_folder() -> Path:
    """Where SpreadsheetBench lies on this machine; NotFoundError when it does not."""
    given = setting("SPREADSHEETBENCH")
    places = [Path(given)] if given else [_CACHE.expanduser() / name for name in _SETS]
    for place in places:
        if (place / "dataset.json").is_file():
            return place
    raise NotFoundError(
        f"SpreadsheetBench is not at {places[0]}. Unpack its data (github.com/RUCKBReasoning/SpreadsheetBench), and "
        "give the folder with dataset.json as --data FOLDER or in BENCHMAX_SPREADSHEETBENCH. The level "
        f"{LEVEL!r} has such tasks without a download."
    )


def load_rows(folder: str | Path, rows: int | None = None) -> list[dict[str, Any]]:
    """The rows of a folder; UsageError for rows without their columns, FileNotFoundError for missing workbooks."""
    published = list(_published(Path(folder)))[:rows]
    found = run_sync(_prepared(Path(folder), published))
    usable = [row for row in found if row is not None]
    if len(usable) < len(found):
        logger.warning("%d of %d rows of %s were left out", len(found) - len(usable), len(found), Path(folder).name)
    return usable


def _published(folder: Path) -> Iterator[dict[str, Any]]:
    text = (folder / "dataset.json").read_text(encoding="utf-8")
    rows = (
        json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    )
    for at, row in enumerate(rows, 1):
        if missing := [name for name in COLUMNS if row.get(name) is None]:
            raise UsageError(f"Row {at} of dataset.json has no {missing[0]}. A row has {', '.join(COLUMNS)}.")
        if not plain_name(str(row["spreadsheet_path"])):
            raise UsageError(f"Row {at} has the path {row['spreadsheet_path']!r}, outside of the folder. Correct it.")
        yield row


async def _prepared(folder: Path, published: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(row: dict[str, Any]) -> dict[str, Any] | None:
        async with places:
            return await _prepare(books, folder, row)

    async with WorkbookSandbox() as books:
        return await all_or_cancel(map(one, published))


async def _prepare(books: WorkbookSandbox, folder: Path, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row as it is played; None when it cannot be."""
    source = _file(folder, row, _INPUTS)
    content = await asyncio.to_thread(source.read_bytes)
    answer = await asyncio.to_thread(_file(folder, row, _ANSWERS).read_bytes)
    try:
        expected = await books.expect(answer, str(row["answer_position"]), row.get("answer_sheet"))
        text = await books.dump(content)
    except WorkbookError as error:
        logger.info("row %s is left out: %s", row["id"], error)
        return None
    judged = {"expected": expected["cells"], "volatile": expected["volatile"], "loose": True}
    if len(json.dumps(judged)) > _IN_ROW_BYTES or await score_workbook(books, content, judged) == 1.0:
        logger.info("row %s is left out: its answer is too large, or in the input already", row["id"])
        return None
    return _as_row(row, text, content, source) | judged


def _as_row(row: Mapping[str, Any], text: str, content: bytes, source: Path) -> dict[str, Any]:
    large = len(content) * 4 // 3 > _IN_ROW_BYTES
    return {
        **{name: str(row[name]) for name in ("id", "instruction", "instruction_type", "answer_position")},
        "level": LEVEL,
        "content": text,
        "input_filename": f"1_{row['id']}_input.xlsx",
        "output_filename": f"1_{row['id']}_output.xlsx",
        **({"input_src_path": str(source)} if large else {"workbook": base64.b64encode(content).decode()}),
    }


def _file(folder: Path, row: Mapping[str, Any], names: tuple[str, ...]) -> Path:
    place = folder / str(row["spreadsheet_path"])
    if not place.is_dir():
        raise FileNotFoundError(f"There is no folder {place}. Unpack the whole dataset beside dataset.json.")
    for name in names:
        if (file := place / name.format(id=row["id"])).is_file():
            return file
    raise FileNotFoundError(f"{place} has no {names[0].format(id=row['id'])}. Unpack the whole dataset again.")
