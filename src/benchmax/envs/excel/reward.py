"""Whether a workbook holds what was asked: every cell by value after recalculation, and where demanded by formula.

A cell is right, wrong or unknown. One wrong cell makes the answer worth 0; when none is wrong but some are unknown, the
answer is left unscored.

    task = {"expected": {"Sheet1": {"B1": 24}}, "formulas": True, "cases": [{"change": …, "expected": …}]}

expected   cells and their values, as in `workbooks/values.py`
formulas   the cells must hold formulas
cases      other inputs: after they are put in, the formulas must show what is expected then
loose      SpreadsheetBench's comparison: two decimals, numbers as text, dates by the day, times by the minute
styles     cells and their styles, such as `bold` or `bg:FFFF00`
volatile   cells whose expected value was that of another day
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from benchmax.envs.excel.workbook_sandbox import WorkbookError, WorkbookSandbox
from benchmax.envs.excel.workbooks.values import number_of
from benchmax.envs.required_columns import require_task
from benchmax.envs.types import RewardValue, Unscored

_SECOND, _MINUTE = 1 / 86_400, 1 / 1_440
_CLOSE = 1e-6


async def score_workbook(books: WorkbookSandbox, content: bytes | None, task: Mapping[str, Any]) -> RewardValue:
    """What a workbook is worth; one that is missing or cannot be opened is worth nothing."""
    require_task(task, "expected")
    if not content:
        return 0.0
    expected: Mapping[str, Mapping[str, Any]] = task["expected"]
    styles: Mapping[str, Mapping[str, Any]] = task.get("styles") or {}
    cells = {sheet: list({**names, **styles.get(sheet, {})}) for sheet, names in expected.items()}
    cases = [case["change"] for case in task.get("cases") or ()]
    try:
        read = await books.read(content, cells, cases, styles=bool(styles))
    except WorkbookError:
        return 0.0
    return _worth(list(_verdicts(read, task)))


def _worth(verdicts: list[bool | str]) -> RewardValue:
    if any(verdict is False for verdict in verdicts):
        return 0.0
    unknown = [verdict for verdict in verdicts if isinstance(verdict, str)]
    return Unscored(f"{len(unknown)} cells cannot be judged: {unknown[0]}") if unknown else float(bool(verdicts))


def _verdicts(read: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[bool | str]:
    loose, volatile = bool(task.get("loose")), task.get("volatile") or {}
    for sheet, name, value in _each(task["expected"]):
        verdict = judge(read["cells"][sheet][name], value, loose=loose)
        changing = verdict is False and name in volatile.get(sheet, ())
        yield "its value depends on the day" if changing else verdict
        if task.get("formulas"):
            yield name in read["formulas"][sheet]
    for case, found in zip(task.get("cases") or (), read["cases"], strict=True):
        for sheet, name, value in _each(case["expected"]):
            yield judge(found[sheet][name], value, loose=loose)
    for sheet, name, wanted in _each(task.get("styles") or {}):
        yield set(wanted) == set(read["styles"].get(sheet, {}).get(name, ()))


def _each(cells: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    for sheet, values in cells.items():
        for name, value in values.items():
            yield sheet, name, value


def judge(found: Any, expected: Any, *, loose: bool = False) -> bool | str:
    """Whether a value is the expected one; a reason when that cannot be said."""
    for value in (found, expected):
        if isinstance(value, dict) and "unknown" in value:
            return str(value["unknown"])
    if _blank(expected) or _blank(found):
        return _blank(expected) and _blank(found)
    if loose:
        found, expected = _loosened(found), _loosened(expected)
    wanted, number = number_of(expected), number_of(found)
    if wanted is None or number is None:
        return type(found) is type(expected) and bool(found == expected)
    return _same_number(number, wanted, expected, loose)


def _blank(value: Any) -> bool:
    return value is None or value == ""


def _loosened(value: Any) -> Any:
    """Numbers that are written as text, and truth as 1, are numbers."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return number if math.isfinite(number) else value
    return value


def _same_number(number: float, wanted: float, expected: Any, loose: bool) -> bool:
    if isinstance(expected, dict):
        whole_day = "date" in expected and wanted == int(wanted)
        if loose and whole_day:
            return int(number) == int(wanted)
        return abs(number - wanted) < (_MINUTE if loose else _SECOND)
    if loose and (number == 0) == (wanted == 0) and round(number, 2) == round(wanted, 2):
        return True
    return math.isclose(number, wanted, rel_tol=_CLOSE, abs_tol=1e-9)
