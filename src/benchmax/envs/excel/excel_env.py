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
from typing import Any

from benchmax.envs.excel.base import ExcelBase
from benchmax.envs.excel.levels import DEFAULT_LEVEL, LEVELS
from benchmax.envs.excel.reward import score_workbook
from benchmax.envs.excel.row_shapes import workbook_of
from benchmax.envs.excel.tools import INPUT, NAMES_FILE, OUTPUT, TOOLS, RolloutFiles, call_tool
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox
from benchmax.envs.generated_tasks import check_level, tools_of_level
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import BaseProvisioner, LocalProvisioner, SkypilotProvisioner
from benchmax.envs.rollout_state import RolloutState
from benchmax.envs.types import Messages, RewardValue, ToolDefinition
from benchmax.errors import ToolError

WORKDIR = Path(__file__).parent / "workdir"


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
        content = await asyncio.to_thread(workbook_of, rollout_args)
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
        content = await asyncio.to_thread(workbook_of, rollout_args)
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
        content = await self._written(rollout_id, self._outputs.get(rollout_id, OUTPUT))
        score = await score_workbook(self._books, content, task or {})
        await self.release_rollout(rollout_id)
        return {"spreadsheet": score}

    async def _written(self, rollout_id: str, name: str) -> bytes | None:
        try:
            return await self._read_workspace(rollout_id, name)
        except FileNotFoundError:
            return None

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
