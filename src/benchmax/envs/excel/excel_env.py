"""Fill in a workbook: one question on a sheet, answered in its cells, by value after recalculation.

The same tasks and tools, in several places:

ExcelEnvInProcess   one sandbox for all rollouts, milliseconds a call; what `benchmax train excel` uses
ExcelEnvLocal       an MCP server for every rollout, on this machine
ExcelEnvSkypilot    the same on rented machines
ExcelEnv            the same on any provisioner

A rollout's workbooks are kept as bytes, and opened nowhere but in the sandbox. What is right never goes there.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.excel import row_shapes, spreadsheetbench
from benchmax.envs.excel.levels import DEFAULT_LEVEL, LEVELS, make_rows
from benchmax.envs.excel.reward import score_workbook
from benchmax.envs.excel.tools import INPUT, NAMES_FILE, OUTPUT, TOOLS, RolloutFiles, call_tool
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox
from benchmax.envs.generated_tasks import check_level, row_example, tools_of_level, worked_example
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import BaseProvisioner, LocalProvisioner, SkypilotProvisioner
from benchmax.envs.required_columns import require_columns
from benchmax.envs.rollout_state import RolloutState
from benchmax.envs.types import Example, Messages, RewardValue, ToolCall, ToolDefinition
from benchmax.errors import ToolError, UsageError

WORKDIR = Path(__file__).parent / "workdir"
WORKED_EXAMPLE: Messages = worked_example(
    "G2: 8\nG3: 60\nG4: 5\nPut the sum of G2:G4 in F8.",
    "set_cell",
    {"cell": "F8", "value": "=SUM(G2:G4)"},
    "F8: =SUM(G2:G4) -> 73",
    "Done.",
)
"""A worked example, for the level at which small models begin; its data are in a column that no task uses."""
_ARGUMENTS = ("input_filename", "output_filename", "level", *row_shapes.SOURCES)
"""Of `init_rollout`, as rows name them."""
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
        given = {**row, "input_filename": source, "output_filename": output}
        return row_example(given, content, _task(row, output), before, _ARGUMENTS)

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


class ExcelEnvInProcess(ExcelBase):
    """Tasks on workbooks, solved with formulas, cell tools and Python code, and judged by value after recalculation."""

    def __init__(self, level: str = DEFAULT_LEVEL, books: WorkbookSandbox | None = None, **kwargs: Any) -> None:
        """`books` is a sandbox that several environments share, and that whoever made it closes."""
        super().__init__(**kwargs)
        self._level, self._listed = level, tools_of_level(LEVELS, level)
        self._own = books is None
        self._books = books or WorkbookSandbox()
        self._rollouts: RolloutState[RolloutFiles] = RolloutState()

    async def list_tools(self) -> list[ToolDefinition]:
        return [TOOLS[name] for name in self._listed]

    async def init_rollout(
        self,
        rollout_id: str,
        level: str | None = None,
        input_filename: str = INPUT,
        output_filename: str = OUTPUT,
        **rollout_args: Any,
    ) -> None:
        check_level(LEVELS, self._level, level)
        await self._books.start()  # a machine without a sandbox fails here, and not in the tool call of a model
        content = await asyncio.to_thread(row_shapes.workbook_of, rollout_args)
        self._rollouts[rollout_id] = RolloutFiles(content, input_filename, output_filename)

    async def release_rollout(self, rollout_id: str) -> None:
        self._rollouts.pop(rollout_id, None)

    async def run_tool(self, rollout_id: str, tool_name: str, /, **tool_args: Any) -> str:
        if tool_name not in self._listed:
            raise ToolError(f"The level {self._level!r} has no tool {tool_name!r}. Use {', '.join(self._listed)}.")
        return await call_tool(self._books, self._rollouts[rollout_id], tool_name, tool_args)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        files = self._rollouts[rollout_id]
        return {"spreadsheet": await score_workbook(self._books, files.written.get(files.output), task or {})}

    async def shutdown(self) -> None:
        if self._own:
            await self._books.close()

    # Workspaces

    async def copy_content_to_workspace(self, rollout_id: str, src_content: str | bytes, dst_filename: str) -> None:
        content = src_content.encode() if isinstance(src_content, str) else src_content
        self._rollouts[rollout_id].written[dst_filename] = content

    async def copy_to_workspace(self, rollout_id: str, src_path: Path, dst_filename: str | None = None) -> None:
        content = await asyncio.to_thread(Path(src_path).read_bytes)
        await self.copy_content_to_workspace(rollout_id, content, dst_filename or Path(src_path).name)

    async def copy_from_workspace(self, rollout_id: str, src_filename: str, dst_path: Path) -> None:
        files = self._rollouts[rollout_id]
        known = {files.input: files.content, **files.written}
        if src_filename not in known:
            raise FileNotFoundError(f"The rollout has no file {src_filename!r}. It has: {', '.join(known)}.")
        await asyncio.to_thread(Path(dst_path).write_bytes, known[src_filename])


class ExcelEnv(ExcelBase, ParallelMcpEnv):
    """The tools on MCP servers, one for each rollout. What a rollout wrote is fetched, and judged in this process."""

    def __init__(
        self,
        workdir_path: str | os.PathLike[str] | None = WORKDIR,
        provisioner: BaseProvisioner | None = None,
        level: str = DEFAULT_LEVEL,
        **kwargs: Any,
    ) -> None:
        self._level = level
        kwargs.setdefault("allowed_tools", tools_of_level(LEVELS, level))
        super().__init__(workdir_path, provisioner, **kwargs)
        self._books = WorkbookSandbox()
        self._outputs: dict[str, str] = {}

    async def init_rollout(
        self,
        rollout_id: str,
        level: str | None = None,
        input_filename: str = INPUT,
        output_filename: str = OUTPUT,
        **rollout_args: Any,
    ) -> None:
        check_level(LEVELS, self._level, level)
        content = await asyncio.to_thread(row_shapes.workbook_of, rollout_args)
        await super().init_rollout(rollout_id)
        self._outputs[rollout_id] = output_filename
        names = json.dumps({"input": input_filename, "output": output_filename})
        await self.copy_content_to_workspace(rollout_id, content, input_filename)
        await self.copy_content_to_workspace(rollout_id, names, NAMES_FILE)

    async def release_rollout(self, rollout_id: str) -> None:
        self._outputs.pop(rollout_id, None)
        await super().release_rollout(rollout_id)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        """Scored here, so that what is right never reaches the servers' machine; then the servers are given back."""
        try:
            content = await self._read_workspace(rollout_id, self._outputs.get(rollout_id, OUTPUT))
        except FileNotFoundError:
            content = None
        score = await score_workbook(self._books, content, task or {})
        await self.release_rollout(rollout_id)
        return {"spreadsheet": score}

    async def shutdown(self) -> None:
        await self._books.close()
        await super().shutdown()


class ExcelEnvLocal(ExcelEnv):
    """On MCP servers of this machine."""

    def __init__(self, num_local_servers: int = 5, level: str = DEFAULT_LEVEL, **kwargs: Any) -> None:
        super().__init__(WORKDIR, LocalProvisioner(WORKDIR, num_local_servers), level, **kwargs)


class ExcelEnvSkypilot(ExcelEnv):
    """On MCP servers of machines that SkyPilot rents."""

    def __init__(
        self,
        cloud: Any = None,
        num_nodes: int = 2,
        servers_per_node: int = 5,
        level: str = DEFAULT_LEVEL,
        **kwargs: Any,
    ) -> None:
        machines = SkypilotProvisioner(WORKDIR, cloud or "azure", num_nodes, servers_per_node)
        super().__init__(WORKDIR, machines, level, **kwargs)
