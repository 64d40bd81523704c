"""Formulas that are nearly right earn nothing: another comparison, a range one row short, one cell of a range."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from openpyxl.formula.translate import Translator

from benchmax.envs.excel.excel_env import ExcelBase
from benchmax.envs.excel.levels import LEVELS, make_rows
from benchmax.envs.excel.reward import score_workbook
from benchmax.envs.excel.row_shapes import workbook_of
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox
from benchmax.envs.excel.workbooks.ranges import cell_name, parse_area
from benchmax.envs.excel.workbooks.typed_values import prefixed
from excel_world import HARDEST

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
ROWS = 40
RANGE = re.compile(r"(\$?[A-Z]\$?)([0-9]+):(\$?[A-Z]\$?)([0-9]+)")
COMPARED = re.compile(r'(?<![<>=(&])([<>]=?)(?=[0-9"])')
OTHER = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
Calls = list[tuple[str, dict[str, Any]]]


def mutants(formula: str) -> Iterator[str]:
    """Formulas that are not the same as this one."""
    for found in COMPARED.finditer(formula):
        yield formula[: found.start()] + OTHER[found[0]] + formula[found.end() :]
    yield from {RANGE.sub(shape, formula) for shape in SHAPES} - {formula}
    ranges = list(RANGE.finditer(formula))
    for found in ranges if len(ranges) > 1 else ():
        for shape in SHAPES[:2]:
            if not (found is ranges[-1] and shape is without_last and re.match("=(SUM|AVERAGE)IF\\(", formula)):
                yield formula[: found.start()] + shape(found) + formula[found.end() :]
    if whole := re.fullmatch(r"=(SUM|MIN|MAX|AVERAGE)\((\w+):(\w+)\)", formula):
        yield from (f"={whole[2]}", f"={whole[3]}")


def without_first(found: re.Match[str]) -> str:
    return f"{found[1]}{int(found[2]) + 1}:{found[3]}{found[4]}"


def without_last(found: re.Match[str]) -> str:
    """SUMIF and AVERAGEIF take the height of their last range from the first: there it is no other formula."""
    return f"{found[1]}{found[2]}:{found[3]}{int(found[4]) - 1}"


def first_alone(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}:{found[3]}{found[2]}"


def last_alone(found: re.Match[str]) -> str:
    return f"{found[1]}{found[4]}:{found[3]}{found[4]}"


SHAPES = (without_first, without_last, first_alone, last_alone)


def solved(row: dict[str, Any], calls: Calls) -> bytes:
    """The workbook after these calls."""
    sheets = {title: dict(cells) for title, cells in row["sheets"].items()}
    for _, given in calls:
        area = parse_area(given.get("range") or given["cell"])
        first = cell_name(area.top, area.left)
        for place in area.cells():
            moved = Translator(prefixed(given["value"]), first).translate_formula(cell_name(*place))
            sheets[area.sheet or next(iter(sheets))][cell_name(*place)] = moved
    return workbook_of({"sheets": sheets})


def mutated(row: dict[str, Any]) -> Iterator[Calls]:
    calls = row["solution"]
    for at, (tool, given) in enumerate(calls):
        for formula in mutants(given["value"]):
            yield [*calls[:at], (tool, {**given, "value": formula}), *calls[at + 1 :]]


FIRST, *OTHERS = (level for level in LEVELS if level != HARDEST)


@pytest.mark.parametrize("level", [FIRST, *(pytest.param(level, marks=pytest.mark.slow) for level in OTHERS)])
async def test_formulas_that_are_nearly_right_earn_nothing(level: str) -> None:
    async with WorkbookSandbox(libreoffice=False) as books:

        async def earned(row: dict[str, Any], calls: Calls) -> Any:
            return await score_workbook(books, solved(row, calls), ExcelBase.dataset_preprocess(row)["task"] or {})

        rows = make_rows(level, rows=ROWS, seed=11)
        assert await asyncio.gather(*(earned(row, row["solution"]) for row in rows)) == [1.0] * ROWS
        tried = [(row, calls) for row in rows for calls in mutated(row)]
        scores = await asyncio.gather(*(earned(*each) for each in tried))
    assert len(tried) >= ROWS
    paid = [(row["instruction"], calls) for (row, calls), score in zip(tried, scores, strict=True) if score == 1.0]
    assert len(paid) <= len(tried) // 50, paid


def test_mutants_are_those_meant() -> None:
    assert next(mutants('=COUNTIF(C2:C9,">68")')) == '=COUNTIF(C2:C9,">=68")'
    assert {"=MIN(C1:C2)", "=MIN(C2:C3)", "=C1", "=C3"} < set(mutants("=MIN(C1:C3)"))
    assert '=IF(C2>=30,"high","low")' in set(mutants('=IF(C2>30,"high","low")'))
    between = '=SUMIFS(O!C2:C9,O!B2:B9,">="&DATE(2024,5,1),O!B2:B9,"<"&DATE(2024,6,1))'
    assert {between.replace(">=", ">"), between.replace("<", "<=")} < set(mutants(between))
    assert list(mutants("=B2*C2")) == []
