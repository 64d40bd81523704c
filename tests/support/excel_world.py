"""For tests of the Excel environment: examples, and workbooks of cells."""

from __future__ import annotations

import io

import openpyxl

from benchmax.envs.excel.excel_env import ExcelEnvInProcess
from benchmax.envs.excel.levels import make_rows
from benchmax.envs.types import Example

HARDEST = "manipulation"
"""The level that lists all tools."""


def examples(level: str, rows: int, seed: int = 0) -> list[Example]:
    return [ExcelEnvInProcess.dataset_preprocess(row) for row in make_rows(level, rows=rows, seed=seed)]


def saved(book: openpyxl.Workbook) -> bytes:
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()
