"""Cells named by text, values typed and compared, workbooks as text."""

from __future__ import annotations

import asyncio
import datetime
import sys
from collections.abc import Iterator
from typing import Any

import openpyxl
import pytest
from openpyxl.styles import Font, PatternFill

from benchmax.envs.datasets import load_examples
from benchmax.envs.excel import ExcelEnvInProcess
from benchmax.envs.excel.reward import judge
from benchmax.envs.excel.row_shapes import sheets_text, workbook_of
from benchmax.envs.excel.workbook_sandbox import WorkbookError, WorkbookSandbox
from benchmax.envs.excel.workbooks.ranges import Area, cell_name, parse_area, parse_areas
from benchmax.envs.excel.workbooks.typed_values import prefixed, read_typed
from excel_books import day, moment, time
from excel_world import saved

# Ranges


@pytest.mark.parametrize(
    ("text", "areas"),
    [
        ("A1", [Area(None, 1, 1, 1, 1)]),
        ("$b$2:C9", [Area(None, 2, 2, 9, 3)]),
        ("C9:B2", [Area(None, 2, 2, 9, 3)]),
        ("A1, B2", [Area(None, 1, 1, 1, 1), Area(None, 2, 2, 2, 2)]),
        ("'My sheet'!A1:B2,Two!C3", [Area("My sheet", 1, 1, 2, 2), Area("Two", 3, 3, 3, 3)]),
        ("'a,b'!A1", [Area("a,b", 1, 1, 1, 1)]),
        ("'It''s'!A1", [Area("It's", 1, 1, 1, 1)]),
        ("'Sheet1'!'A1:B2'", [Area("Sheet1", 1, 1, 2, 2)]),
        ("Sheet1'!A1", [Area("Sheet1", 1, 1, 1, 1)]),
        ("A:C", [Area(None, 1, 1, None, 3)]),
        ("2:4", [Area(None, 2, 1, 4, None)]),
        ("XFD1048576", [Area(None, 1048576, 16384, 1048576, 16384)]),
        ("报表!A1", [Area("报表", 1, 1, 1, 1)]),
    ],
)
def test_areas_in_every_way_they_are_written(text: str, areas: list[Area]) -> None:
    assert parse_areas(text) == areas


@pytest.mark.parametrize(
    "text", ["", " , ", "A", "1", "A0", "XFE1", "A1048577", "A1:B", "!A1", "A1:B2:C3", "hello", "A-1"]
)
def test_what_names_no_cells_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"\."):
        parse_areas(text)


def test_open_sides_end_where_the_sheet_does() -> None:
    assert list(parse_area("B:B").clipped(3, 9).cells()) == [(1, 2), (2, 2), (3, 2)]
    assert [cell_name(*each) for each in parse_area("2:2").clipped(9, 2).cells()] == ["A2", "B2"]
    assert parse_area("A1:XFD1048576").size == 16384 * 1048576


# Comparing


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (24, 24.0, True),
        (24, 24.0000001, True),
        (24, 24.01, False),
        ("24", 24, False),
        (24, "24", False),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        (None, "", True),
        ("", None, True),
        (0, None, False),
        (None, 0, False),
        ("a", "A", False),
        ("a ", "a", False),
        ({"error": "#N/A"}, {"error": "#N/A"}, True),
        ({"error": "#N/A"}, {"error": "#REF!"}, False),
        ("#N/A", {"error": "#N/A"}, False),
        (45356, day("2024-03-05"), True),
        (45356.5, day("2024-03-05"), False),
        ("2024-03-05", day("2024-03-05"), False),
        (45356.5625, moment("2024-03-05T13:30:00"), True),
        (0.34375, time("08:15:00"), True),
        (0.3438, time("08:15:00"), False),
        ("08:15", time("08:15:00"), False),
        (1e15 + 1, 1e15 + 1, True),
        (0, 1e-7, False),
    ],
)
def test_values_are_compared_with_their_types(found: Any, expected: Any, same: bool) -> None:
    assert judge(found, expected) is same


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (1.234, 1.23, True),
        (1.236, 1.23, False),
        ("1.23", 1.234, True),
        ("24", 24, True),
        (True, 1, True),
        (0.004, 0, False),
        ("1e400", "1e400", True),
        ("nan", "nan", True),
        (45356.7, day("2024-03-05"), True),
        (45357, day("2024-03-05"), False),
        (0.3438, time("08:15:00"), True),
        (0.36, time("08:15:00"), False),
        ("a", "b", False),
        (None, "", True),
    ],
)
def test_values_are_compared_as_spreadsheetbench_does(found: Any, expected: Any, same: bool) -> None:
    assert judge(found, expected, loose=True) is same


def test_what_is_unknown_is_neither_right_nor_wrong() -> None:
    assert judge({"unknown": "why"}, 5) == "why"
    assert judge(5, {"unknown": "why"}) == "why"


# Typing


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("12", 12),
        (" -1,234.5 ", -1234.5),
        ("$3.50", 3.5),
        ("1e3", 1000),
        ("25%", 0.25),
        ("TRUE", True),
        ("false", False),
        ("hello", "hello"),
        ("'12", "12"),
        ("", None),
        ("=A1", "=A1"),
        ("=", "="),
        ("2024-03-05", datetime.datetime(2024, 3, 5)),
        ("3/5/2024", datetime.datetime(2024, 3, 5)),
        ("8:30", datetime.time(8, 30)),
        ("2024-13-45", "2024-13-45"),
        ("25:00", "25:00"),
        (12, 12),
        (True, True),
        ("1-2-3", "1-2-3"),
        ("12 pens", "12 pens"),
        ("1,2", "1,2"),
        ("2024-03-05 13:30", datetime.datetime(2024, 3, 5, 13, 30)),
    ],
)
def test_typed_texts_mean_what_they_do_in_a_spreadsheet(typed: Any, value: Any) -> None:
    assert read_typed(typed)[0] == value


@pytest.mark.parametrize("level", [None, "formulas"])
def test_a_row_may_have_its_workbook_as_a_file_alone(level: str | None) -> None:
    row = {"instruction": "Sum A1:A2 in B1.", "answer_position": "B1", "expected": {"Sheet1": {"B1": 3}}}
    (example,) = load_examples([{**row, "level": level, "workbook": "UEs="}], ExcelEnvInProcess)
    shown = str(example["prompt_messages"][-1]["content"])
    assert "Spreadsheet Content" not in shown
    assert "Instruction: Sum A1:A2 in B1.\nSpreadsheet Path: input.xlsx" in shown
    assert workbook_of(example.get("init_rollout_args") or {}) == b"PK"


def test_newer_functions_get_their_prefix() -> None:
    assert prefixed('=XLOOKUP("XLOOKUP(",A1:A2,SUM(B1))') == '=_xlfn.XLOOKUP("XLOOKUP(",A1:A2,SUM(B1))'
    assert prefixed("=SUM(FILTER(A1:A3,B1:B3))") == "=SUM(_xlfn._xlws.FILTER(A1:A3,B1:B3))"


# Workbooks as text, read and edited in the sandbox


@pytest.fixture(scope="module")
def books() -> Iterator[WorkbookSandbox]:
    if sys.platform != "linux":
        pytest.skip("the sandbox needs Linux")
    opened = WorkbookSandbox(libreoffice=False)
    yield opened
    asyncio.run(opened.close())


def styled() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Prices"
    sheet["A1"], sheet["B1"] = "Item", "Price"
    sheet["A1"].font = Font(bold=True, italic=True, underline="single", color="FFFF0000")
    sheet["B2"], sheet["A3"], sheet["B3"] = 0, datetime.date(2024, 3, 5), "=B2+1.5"
    sheet["C3"].fill = PatternFill("solid", fgColor="FFFF00")
    book.create_sheet("Empty")
    return saved(book)


async def test_a_dump_shows_values_formulas_and_styles(books: WorkbookSandbox) -> None:
    assert await books.dump(styled()) == (
        "Sheet Name: Prices\nA1: Item [color:FF0000, bold, italic, underline]\nB1: Price\n\nB2: 0\n\n"
        "A3: 2024-03-05\nB3: =B2+1.5 -> 1.5\nC3: null [bg:FFFF00]\n\nSheet Name: Empty"
    )
    compact = await books.dump(styled(), compact=True)
    assert compact.splitlines()[2:4] == ["B2: 0", "A3: 2024-03-05 | B3: =B2+1.5 -> 1.5 | C3: null [bg:FFFF00]"]
    short = await books.dump(styled(), most=40)
    assert len(short) < 120
    assert short.endswith("(cut: the rest is not shown)")


async def test_the_text_of_cells_is_that_of_their_workbook(books: WorkbookSandbox) -> None:
    sheets = {
        "One": {"A1": 7, "B1": 0.1 + 0.2, "A2": "x", "B2": True, "A3": day("2024-03-05"), "B3": time("08:15:00")},
        "Two": {"B10": {"formula": "=One!A1*2", "value": 14}, "A2": 1, "AA1": 12345678},
    }
    assert sheets_text(sheets) == await books.dump(workbook_of({"sheets": sheets}), compact=True)


async def test_cells_are_written_filled_and_read(books: WorkbookSandbox) -> None:
    content = workbook_of({"sheets": {"S": {"A1": 1, "A2": 2, "A3": 3}, "T w o": {}}})
    one = await books.edit(content, "B1", "=A1*10")
    assert one.text == "B1: =A1*10 -> 10"
    filled = await books.edit(one.content, "B2:C3", "=$A2+A$1")
    assert filled.text == "B2: =$A2+A$1 -> 3\nC2: =$A2+B$1 -> 12\nB3: =$A3+A$1 -> 4\n…"
    other = await books.edit(filled.content, "'t W O'!A1", "2024-03-05")
    assert other.text == "A1: 2024-03-05"
    assert await books.get(other.content, "A1:B2") == "A1: 1\nB1: =A1*10 -> 10\nA2: 2\nB2: =$A2+A$1 -> 3"
    assert await books.get(other.content, "Z9") == "empty"
    assert (await books.edit(content, "A1", "'007")).text == "A1: 007"
    assert (await books.edit(content, "B1", "=XLOOKUP(2,A1:A3,A1:A3)")).text == "B1: =XLOOKUP(2,A1:A3,A1:A3) -> 2"


@pytest.mark.parametrize(
    ("area", "value", "told"),
    [
        ("Nowhere!A1", 1, "there is no sheet 'Nowhere'. The sheets are: S"),
        ("A1:", 1, "A1"),
        ("A:XFD", 1, "too many"),
        ("B1", "=SUM(", "cannot be read"),
        ("zzzz1", 1, "names no cells"),
        ("A1", "=1+", "cannot be read"),
    ],
)
async def test_what_cannot_be_written_is_told(books: WorkbookSandbox, area: str, value: Any, told: str) -> None:
    content = workbook_of({"sheets": {"S": {"A1": 1}}})
    with pytest.raises(WorkbookError, match=told.replace(".", r"\.")):
        await books.edit(content, area, value)
