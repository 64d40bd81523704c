"""The levels, easiest first, and the rows of each."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmax.envs.excel.levels import conditions, formulas, manipulation, reports, tables
from benchmax.envs.excel.levels.task import MakeTask
from benchmax.envs.generated_tasks import draw_different


@dataclass(frozen=True, slots=True)
class Level:
    makers: Sequence[MakeTask]
    tools: Sequence[str]


LEVELS: dict[str, Level] = {
    "formulas": Level((formulas.aggregate, formulas.two_cells), ("set_cell",)),
    "tables": Level(
        (
            tables.column_total, tables.new_column, tables.share_of_total, tables.one_of_the_items,
            tables.column_and_total,
        ),
        ("set_cell", "fill_cells"),
    ),
    "conditions": Level(
        (
            conditions.total_of_region, conditions.average_of_region, conditions.orders_over,
            conditions.total_with_two_conditions, conditions.price_of_item, conditions.best_item,
            conditions.high_or_low, conditions.rank, conditions.discount,
        ),
        ("set_cell", "fill_cells"),
    ),
    "reports": Level(
        (
            reports.total_of_month, reports.price_from_other_sheet, reports.due_date, reports.end_of_month,
            reports.hours_worked, reports.names, reports.blanks,
        ),
        ("set_cell", "fill_cells", "get_cells"),
    ),
    "manipulation": Level(
        (
            manipulation.sort_rows, manipulation.remove_duplicates, manipulation.remove_incomplete,
            manipulation.summary, manipulation.split_names, manipulation.real_dates, manipulation.real_numbers,
            manipulation.highlight, manipulation.transpose, manipulation.join_sheets,
        ),
        ("set_cell", "fill_cells", "get_cells", "run_excel_code"),
    ),
}  # fmt: skip
DEFAULT_LEVEL = "formulas"
ROWS = 1_000


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """Different tasks of a level, the same for the same seed."""
    draw = random.Random(f"{level} {seed}")
    wanted = ROWS if rows is None else rows
    made = draw_different(
        LEVELS[level].makers, lambda make: make(draw), lambda task: json.dumps([task.instruction, task.sheets]), wanted
    )
    return [task.as_row(level) for task in made]
