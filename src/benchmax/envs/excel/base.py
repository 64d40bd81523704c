"""What all Excel environments share: prompts, rows, levels and demonstrations. Where the tools run is up to each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.excel import row_shapes, spreadsheetbench
from benchmax.envs.excel.levels import DEFAULT_LEVEL, LEVELS, make_rows
from benchmax.envs.excel.tools import INPUT, OUTPUT
from benchmax.envs.generated_tasks import worked_example
from benchmax.envs.required_columns import require_columns
from benchmax.envs.types import Example, Messages, ToolCall
from benchmax.errors import UsageError

WORKED_EXAMPLE: Messages = worked_example(
    "G2: 8\nG3: 60\nG4: 5\nPut the sum of G2:G4 in F8.",
    "set_cell",
    {"cell": "F8", "value": "=SUM(G2:G4)"},
    "F8: =SUM(G2:G4) -> 73",
    "Done.",
)
"""A worked example, for the level at which small models begin; its data are in a column that no task uses."""
_SHORT_PROMPT_LEVELS = ("formulas", "tables", "conditions", "reports")
"""Levels whose prompts are the workbook and a sentence; the others have the headings of SpreadsheetBench."""
MANIPULATION_PROMPT = (
    "Solve the task on the workbook with the tools, and save the result at the output path. "
    "The answer position says which cells are looked at. When it is saved, say Done."
)


class ExcelBase(BaseEnv):
    """Rows are those of a level, or of SpreadsheetBench: see `spreadsheetbench.py`."""

    system_prompt = "Solve the task with the tools. Write formulas, not numbers. Then say Done."
    recommended_max_turns = 8
    recommended_max_tool_calls = 8
    PRIMARY_REWARD_KEY = "spreadsheet"
    reward_weights: ClassVar = {"spreadsheet": 1.0}

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        require_columns(row, "instruction", "answer_position", "expected")
        if not any(row.get(name) for name in row_shapes.SOURCES):
            raise UsageError(f"An Excel row needs a workbook in one of {', '.join(row_shapes.SOURCES)}. Add one.")
        source, output = row.get("input_filename") or INPUT, row.get("output_filename") or OUTPUT
        short = bool(row.get("sheets")) and row.get("level") in _SHORT_PROMPT_LEVELS
        content = row_shapes.short_prompt(row) if short else row_shapes.full_prompt(row, source, output)
        before: Messages = [] if short else [{"role": "system", "content": MANIPULATION_PROMPT}]
        before += WORKED_EXAMPLE if row.get("level") == DEFAULT_LEVEL else []
        return make_example(
            prompt_messages=[*before, {"role": "user", "content": content}],
            task=_task(row, output),
            init_rollout_args={
                "input_filename": source,
                "output_filename": output,
                **{name: row[name] for name in ("level", *row_shapes.SOURCES) if row.get(name) is not None},
            },
        )

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """A level, made here (`rows`, `seed`); `spreadsheetbench`, or its folder; else a dataset of the hub."""
        if dataset_name in LEVELS:
            return make_rows(dataset_name, **kwargs), None
        if dataset_name == spreadsheetbench.NAME or Path(dataset_name, "dataset.json").is_file():
            named = dataset_name == spreadsheetbench.NAME
            folder = kwargs.pop("path", None) or (spreadsheetbench.find_folder() if named else dataset_name)
            return spreadsheetbench.load_rows(folder, **kwargs), str(folder)
        return super().load_dataset(dataset_name, **kwargs)

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        return "Done." if (example.get("task") or {}).get("solution") else None

    @classmethod
    def gold_tool_calls(cls, example: Example) -> list[ToolCall]:
        return [ToolCall(tool, json.dumps(given)) for tool, given in (example.get("task") or {}).get("solution") or ()]

    def demonstrate(self, example: Example) -> list[Any] | None:
        """The solution of a generated task; other rows have none."""
        solution = (example.get("task") or {}).get("solution")
        return [*solution, "Done."] if solution else None


def _task(row: dict[str, Any], output: str) -> dict[str, Any]:
    task = {
        "dataset_row_id": row.get("id"),
        "answer_position": row["answer_position"],
        "output_filename": output,
        "expected": row["expected"],
        "formulas": bool(row.get("formulas", row.get("cases"))),
    }
    others = ("cases", "styles", "loose", "volatile", "solution")
    return task | {name: row[name] for name in others if row.get(name)}
