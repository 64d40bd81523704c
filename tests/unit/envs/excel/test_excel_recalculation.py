"""Values after recalculation: sixty workbooks worked out by hand, and what nobody can say."""

from __future__ import annotations

import asyncio
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart
from openpyxl.worksheet.formula import ArrayFormula

import excel_world
from benchmax.envs.excel import libreoffice_client
from benchmax.envs.excel.libreoffice_client import python_with_uno
from benchmax.envs.excel.reward import judge, score_workbook
from benchmax.envs.excel.row_shapes import workbook_of
from benchmax.envs.excel.workbook_sandbox import WorkbookError, WorkbookSandbox
from benchmax.envs.types import Unscored
from excel_books import BOOKS, DIV, N_A, day
from excel_world import saved

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.fixture(scope="module")
def books() -> Iterator[WorkbookSandbox]:
    """ironcalc alone, as where no LibreOffice is installed."""
    opened = WorkbookSandbox(libreoffice=False)
    yield opened
    asyncio.run(opened.close())


def cells_of(expected: dict[str, object]) -> dict[str, dict[str, object]]:
    """By sheet and name."""
    found: dict[str, dict[str, object]] = {}
    for name, value in expected.items():
        sheet, _, cell = name.rpartition("!")
        found.setdefault(sheet, {})[cell] = value
    return found


def test_there_are_sixty() -> None:
    assert len(BOOKS) >= 60


async def test_workbooks_worked_out_by_hand(books: WorkbookSandbox) -> None:
    async def wrong(name: str) -> list[str]:
        sheets, expected = BOOKS[name]
        wanted = cells_of(expected)
        content = workbook_of({"sheets": sheets})
        read = await books.read(content, {sheet: list(cells) for sheet, cells in wanted.items()})
        return [
            f"{name}: {sheet}!{cell} is {read['cells'][sheet][cell]!r}, not {value!r}"
            for sheet, cells in wanted.items()
            for cell, value in cells.items()
            if judge(read["cells"][sheet][cell], value) is not True
        ]

    assert [each for found in await asyncio.gather(*map(wrong, BOOKS)) for each in found] == []


@pytest.mark.skipif(python_with_uno() is None, reason="LibreOffice is not installed")
async def test_libreoffice_says_the_same_of_a_cell_that_ironcalc_cannot_compute() -> None:
    book = openpyxl.Workbook()
    book.active["A1"], book.active["A2"] = 3, 4
    book.active["B1"] = "=_xlfn.AGGREGATE(9,6,A1:A2)"
    cells = {"Sheet": ["B1"]}
    async with WorkbookSandbox() as both:
        read = await both.read(saved(book), cells, [{"Sheet": {"A1": 10}}])
    assert read["cells"]["Sheet"]["B1"] == 7
    assert read["cases"][0]["Sheet"]["B1"] == 14


async def test_a_second_opinion_is_asked_line_by_line_and_started_again(monkeypatch) -> None:
    monkeypatch.setattr(libreoffice_client, "PROGRAM", Path(excel_world.__file__).with_name("stub_libreoffice.py"))
    monkeypatch.setattr(libreoffice_client, "python_with_uno", lambda: sys.executable)
    other = libreoffice_client.SecondOpinion(seconds=30)

    async def asked(content: bytes) -> Any:
        found = await other.values(content, {"Sheet": ["A1"]}, [{"Sheet": {"B1": 2}}])
        return found and (found["cells"]["Sheet"]["A1"], found["cases"][0]["Sheet"]["A1"])

    large = await asked(b"x" * 3_000_000)
    assert large[0][1] == 3_000_000
    assert (await asked(b"small"))[1] == [large[0][0], 5], "by the same process"
    for content in (b"fail", b"end"):
        assert await asked(content) is None
        assert (await asked(b"again"))[0][1] == 5
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asked(b"slow"), 0.3)
    assert (await asked(b"after it"))[0][1] == 8, "the answer to what was cancelled is not that to the next"
    await other.close()


# What nobody can say


@pytest.mark.parametrize(
    "formula",
    [
        "=_xlfn.AGGREGATE(9,6,A1:A2)", "=SUM(Prices[Amount])", "=[1]Other!A1", "=SUM(Sheet:Two!A1)",
        "=SUM(A1:A2 A1:B1)", '=SUMPRODUCT(--(LEFT(A1:A2)="3"))', '=TEXT(1.5,"# ?/?")',
        '=SUMIF(A1:A2,">1",A1:A3)', '=SUMIFS(A1:A3,A1:A2,">"&ABS(1))', "=A1^9999", "=POWER(9,999)",
    ],
)  # fmt: skip
async def test_a_formula_that_cannot_be_computed_is_unknown_and_so_is_what_depends_on_it(books, formula) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"], sheet["A2"], sheet["B1"], sheet["C1"], sheet["D1"] = 3, 4, formula, "=B1+1", "=A1+1"
    sheet["E1"], sheet["E2"] = "=SUM(A1:C1)", '=INDIRECT("B"&1)'
    book.create_sheet("Two")["A1"] = "=Sheet!C1"
    read = await books.read(saved(book), {"Sheet": ["B1", "C1", "D1", "E1", "E2"], "Two": ["A1"]})
    values = read["cells"]["Sheet"] | {"Two": read["cells"]["Two"]["A1"]}
    assert [name for name, value in values.items() if isinstance(value, dict) and "unknown" in value] == [
        "B1", "C1", "E1", "E2", "Two",
    ]  # fmt: skip
    assert values["D1"] == 4
    task = {"expected": {"Sheet": {"B1": 7, "D1": 4}}}
    assert isinstance(await score_workbook(books, saved(book), task), Unscored)
    wrong_elsewhere = {"expected": {"Sheet": {"B1": 7, "D1": 5}}}
    assert await score_workbook(books, saved(book), wrong_elsewhere) == 0.0


@pytest.mark.parametrize("formula", ["=NOSUCHTHING(1)", "=SUM(", "=1+", "=A1:", "=)("])
async def test_what_is_no_formula_is_wrong_not_unknown(books, formula) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = formula
    assert await score_workbook(books, saved(book), {"expected": {"Sheet": {"A1": 7}}}) == 0.0


async def test_defined_names_carry_doubt_and_values(books) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"], sheet["A2"], sheet["B1"], sheet["B2"] = 3, "=_xlfn.AGGREGATE(9,6,A1)", "=Good*2", "=Bad*2"
    for name, cell in (("Good", "$A$1"), ("Bad", "$A$2")):
        book.defined_names[name] = openpyxl.workbook.defined_name.DefinedName(name, attr_text=f"Sheet!{cell}")
    read = await books.read(saved(book), {"Sheet": ["B1", "B2"]})
    assert read["cells"]["Sheet"]["B1"] == 6
    assert "unknown" in read["cells"]["Sheet"]["B2"]


async def test_array_formulas_fill_their_range(books) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for row, value in enumerate((1, 2, 3), 1):
        sheet.cell(row, 1).value = value
    sheet["B1"] = ArrayFormula("B1:B3", "=A1:A3*10")
    sheet["C1"] = ArrayFormula("C1", "=SUM(IF(A1:A3>1,A1:A3,0))")
    read = await books.read(saved(book), {"Sheet": ["B1", "B2", "B3", "C1"]})
    assert list(read["cells"]["Sheet"].values()) == [10, 20, 30, 5]


async def test_values_that_the_file_claims_are_not_believed(books) -> None:
    """A formula with another value beside it in the file is computed anew."""
    import io
    import zipfile

    book = openpyxl.Workbook()
    book.active["A1"], book.active["A2"] = 2, "=A1*3"
    source = zipfile.ZipFile(io.BytesIO(saved(book)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"<v></v>", b"<v>99</v>").replace(b"<v/>", b"<v>99</v>"))
    assert openpyxl.load_workbook(io.BytesIO(file.getvalue()), data_only=True).active["A2"].value == 99
    read = await books.read(file.getvalue(), {"Sheet": ["A2"]})
    assert read["cells"]["Sheet"]["A2"] == 6


async def test_cases_change_the_workbook_as_it_was(books) -> None:
    content = workbook_of({"sheets": {"S": {"A1": 1, "A2": 2, "A3": "=A1+A2", "A4": '=IF(A1="","none",A1)'}}})
    cases = [
        {"S": {"A1": 10}},
        {"S": {"A2": 20}},
        {"S": {"A1": None}},
        {"S": {"A1": "x"}},
        {"S": {"A1": day("2024-03-05")}},
    ]
    read = await books.read(content, {"S": ["A3", "A4"]}, cases)
    assert [each["S"]["A3"] for each in read["cases"]] == [12, 21, 2, {"error": "#VALUE!"}, 45358]
    assert [each["S"]["A4"] for each in read["cases"]] == [10, 1, "none", "x", 45356]


async def test_a_power_is_in_doubt_only_where_it_is_too_large(books) -> None:
    content = workbook_of({"sheets": {"S": {"A1": 2, "A2": "=A1^999", "A3": "=A2+1", "A4": "=1/0", "A5": "=A1^2/0"}}})
    read = await books.read(content, {"S": ["A2", "A3", "A4", "A5"]}, [{"S": {"A1": 9}}, {"S": {"A1": 1}}])
    kinds = [
        ["unknown" in each if isinstance(each, dict) else each for each in case["S"].values()] for case in read["cases"]
    ]
    assert kinds == [[True, True, False, False], [1, 2, False, False]]
    assert read["cells"]["S"]["A2"] == 2.0**999
    assert read["cases"][0]["S"]["A4"] == read["cases"][0]["S"]["A5"] == {"error": "#DIV/0!"}


async def test_what_is_no_formula_is_read_as_it_stands(books) -> None:
    """Rich texts, merged cells, dates, errors and a chart's own sheet among the others."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"] = CellRichText("plain ", TextBlock(InlineFont(b=True), "bold"))
    sheet["A2"], sheet["A3"], sheet["A4"] = datetime.datetime(2024, 3, 5), "#N/A", "=A1"
    sheet.merge_cells("B1:C2")
    sheet["B1"] = 7
    cells = ["A1", "A2", "A3", "B1", "C2"]
    expected = {"A1": "plain bold", "A2": day("2024-03-05"), "A3": N_A, "B1": 7, "C2": None}
    assert await score_workbook(books, saved(book), {"expected": {"Sheet": expected}}) == 1.0
    book.create_chartsheet("Chart").add_chart(BarChart())
    read = await books.read(saved(book), {"Sheet": [*cells, "A4"]})
    assert all(judge(read["cells"]["Sheet"][name], value) is True for name, value in expected.items())
    assert judge(read["cells"]["Sheet"]["A4"], "plain bold") is not False


async def test_workbooks_that_are_none_are_worth_nothing(books) -> None:
    task = {"expected": {"S": {"A1": 1}}}
    for content in (None, b"", b"no workbook", saved(openpyxl.Workbook())[:-200]):
        assert await score_workbook(books, content, task) == 0.0
    with pytest.raises(WorkbookError):
        await books.dump(b"no workbook")


async def test_hostile_workbooks_cost_their_own_call_alone(books) -> None:
    """A formula that never ends, and one that nests too deep for any stack."""
    book = openpyxl.Workbook()
    book.active["A1"] = "=" + "(" * 7000 + "1" + ")" * 7000
    deep = await score_workbook(books, saved(book), {"expected": {"Sheet": {"A1": 2}}})
    assert deep == 0.0
    content = workbook_of({"sheets": {"S": {"A1": "=1/0"}}})
    assert await score_workbook(books, content, {"expected": {"S": {"A1": DIV}}}) == 1.0
