"""A generated task: a workbook, what is asked, what is right, and how the tools get there.

Values are as in `workbooks/values.py`, by sheet and cell: `{"Sheet1": {"A1": 7}}`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmax.envs.excel.levels.distinguishing_inputs import Answer, Inputs, Sheets, telling_inputs
from benchmax.envs.excel.workbooks.ranges import cell_name, parse_area

SHEET = "Sheet1"
CASES = 2
"""Other inputs that a formula must be right for, at the least."""
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Task:
    instruction: str
    sheets: Sheets
    expected: Sheets
    solution: Sequence[tuple[str, Mapping[str, Any]]]
    """Tools and their arguments."""
    position: str
    """Where the answer is, as text."""
    cases: Sequence[Mapping[str, Sheets]] = ()
    """With any, the answer must be formulas."""
    styles: Mapping[str, Mapping[str, Sequence[str]]] | None = None

    def as_row(self, level: str) -> dict[str, Any]:
        return {
            "level": level,
            "instruction": self.instruction,
            "sheets": self.sheets,
            "answer_position": self.position,
            "expected": self.expected,
            "cases": list(self.cases),
            "styles": self.styles,
            "solution": [[tool, dict(given)] for tool, given in self.solution],
        }


MakeTask: TypeAlias = Callable[[random.Random], Task]


def formula_task(
    draw: random.Random,
    instruction: str,
    inputs: Inputs,
    answer: Answer,
    solution: Sequence[tuple[str, Mapping[str, Any]]],
    position: str,
    *,
    aimed: Inputs | None = None,
    rivals: Sequence[Answer] = (),
) -> Task:
    """A task whose answer must be a formula: it is right for other inputs as well.

    Two of them have other answers than the workbook shown; more are added until a formula that leaves out a row, and
    every rival, is wrong for one. Those are drawn by `aimed`, where inputs that tell them apart are rare.
    """
    shown = inputs(draw)
    expected = answer(shown)
    others: list[Sheets] = []
    for _ in range(_TRIES):
        other = inputs(draw)
        if answer(other) != expected:
            others.append(other)
        if len(others) == CASES:
            break
    else:
        raise ValueError(f"The answer is always {expected}: {instruction}")
    others += telling_inputs(random.Random(f"{instruction} {shown}"), aimed or inputs, answer, rivals, [shown, *others])
    cases = [{"change": _changed(shown, other), "expected": answer(other)} for other in others]
    return Task(instruction, shown, expected, solution, position, cases)


def cells_task(
    draw: random.Random,
    instruction: str,
    inputs: Inputs,
    value: Callable[..., Any],
    formula: str,
    cells: str,
    *,
    sheet: str = SHEET,
    aimed: Inputs | None = None,
    rivals: Sequence[Callable[..., Any]] = (),
) -> Task:
    """One formula, for a cell or, filled down, for part of a column (`Report!B2`, `E2:E7`).

    `value` computes what a cell shows from the sheets, and in a column from its row as well.
    """
    area = parse_area(cells)
    places = [(row, cell_name(row, column)) for row, column in area.cells()]

    def shows(compute: Callable[..., Any]) -> Answer:
        if ":" not in cells:
            return lambda sheets: {area.sheet or sheet: {name: compute(sheets) for _, name in places}}
        return lambda sheets: {area.sheet or sheet: {name: compute(sheets, row) for row, name in places}}

    wrong, solution = [shows(each) for each in rivals], [put(cells, formula)]
    return formula_task(draw, instruction, inputs, shows(value), solution, cells, aimed=aimed, rivals=wrong)


def put(cells: str, formula: str) -> tuple[str, dict[str, str]]:
    """The call that puts a formula into a cell, or fills a range with it."""
    if ":" in cells:
        return "fill_cells", {"range": cells, "value": formula}
    return "set_cell", {"cell": cells, "value": formula}


def _changed(shown: Sheets, other: Sheets) -> Sheets:
    """Cells whose values differ."""
    return {
        sheet: {
            name: other[sheet].get(name)
            for name in {**cells, **other[sheet]}
            if cells.get(name) != other[sheet].get(name)
        }
        for sheet, cells in shown.items()
    }


def table(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Cells of rows, without the blank ones."""
    return {
        cell_name(r, c): value for r, row in enumerate(rows, 1) for c, value in enumerate(row, 1) if value is not None
    }
