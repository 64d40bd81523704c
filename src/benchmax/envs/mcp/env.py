"""`ParallelMcpEnv`: an environment of MCP servers, with its own servers and files for every rollout.

env = ParallelMcpEnv("my_workdir", LocalProvisioner("my_workdir", num_servers=20))

init_rollout     waits for fresh servers and an empty private directory, in the order of the requests
run_tool         calls a tool of these servers
compute_reward   runs the workdir's reward_fn.py on the machine that has the files
release_rollout  ends the servers and deletes the directory
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from benchmax import limits
from benchmax.deadlines import current_hook_seconds, queueing
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.io_loop import IoLoop
from benchmax.envs.mcp.client.content import as_tool_result
from benchmax.envs.mcp.client.reward_client import McpClient
from benchmax.envs.mcp.packed_workdir import PackedWorkdir
from benchmax.envs.mcp.pool import Health, ServerPool, read_file
from benchmax.envs.mcp.provisioners import BaseProvisioner, LocalProvisioner
from benchmax.envs.mcp.workdir import MissingFile, check_workdir, write_workdir
from benchmax.envs.remote.wire import rebuild, transcript_starts
from benchmax.envs.types import Messages, RewardValue, ToolDefinition, ToolResult, Unscored
from benchmax.errors import EnvDefinitionError, McpError, NotFoundError, ToolError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree

OutputParser = Callable[[str], Any]
Result = TypeVar("Result")
_LIST_SECONDS = 90.0
_TOOL_MARGIN, _REWARD_MARGIN = 2.0, 5.0
"""The agent times out this many seconds before the rollout does, so that its error message arrives."""
_LARGEST_MARGIN = 0.1
"""The largest margin, as a share of the time a hook has."""


class ParallelMcpEnv(BaseEnv):
    """An environment of MCP servers. Subclass it to set a system prompt and to turn rows into examples."""

    _packed_workdir: PackedWorkdir | None = None

    def __init__(
        self,
        workdir_path: str | os.PathLike[str] | None = None,
        provisioner: BaseProvisioner | None = None,
        api_secret: str | None = None,
        allowed_tools: Sequence[str] | None = None,
        output_parsers: Mapping[str, OutputParser] | None = None,
        health_check_timeout: float = 5,
        initial_health_check_interval: float = 2,
        max_health_check_interval: float = 15,
        max_health_check_attempts: int = 20,
        backoff_factor: float = 2.0,
        provision_at_init: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if workdir_path is None or provisioner is None:
            raise EnvDefinitionError(
                "ParallelMcpEnv needs a workdir and a provisioner: ParallelMcpEnv(folder, LocalProvisioner(folder)). "
                "Without a folder, use ParallelMcpEnv.from_servers({…})."
            )
        check_workdir(workdir_path)
        health = Health(
            health_check_timeout, initial_health_check_interval, max_health_check_interval,
            max_health_check_attempts, backoff_factor,
        )  # fmt: skip
        self._set_up(provisioner, (api_secret or "").strip() or uuid4().hex, allowed_tools, output_parsers, health)
        self._packed_workdir = workdir_path if isinstance(workdir_path, PackedWorkdir) else None
        if provision_at_init:
            self._io.begin(self._open_quietly)

    def _set_up(
        self,
        provisioner: BaseProvisioner,
        secret: str,
        allowed_tools: Sequence[str] | None,
        output_parsers: Mapping[str, OutputParser] | None,
        health: Health,
    ) -> None:
        self._provisioner = provisioner
        self._allowed = None if allowed_tools is None else list(allowed_tools)
        self._parsers = dict(output_parsers or {})
        self._tools: list[ToolDefinition] | None = None
        self._listed: dict[str, str] = {}
        """The names that models see, and those that the servers list."""
        self._rewards: dict[str, Callable[..., Any]] | None = None
        self._folder: Path | None = None
        self._shut = threading.Event()
        self._io = IoLoop("benchmax-mcp", McpError)
        self._pool = ServerPool(provisioner, secret, health)
        self._opening: asyncio.Task[None] | None = None

    @classmethod
    def from_servers(
        cls,
        servers: Mapping[str, Mapping[str, Any]],
        *,
        rewards: Mapping[str, Callable[..., Any]] | None = None,
        num_servers: int = 4,
        allowed_tools: Sequence[str] | None = None,
        output_parsers: Mapping[str, OutputParser] | None = None,
    ) -> Self:
        """An environment without a workdir: servers as in `mcpServers`, rewards as functions, all on this machine.

        The functions get the same arguments as those of reward_fn.py, and run in this process.
        """
        folder = make_owned_dir("benchmax-servers-")
        try:
            write_workdir(folder, servers)
            env = cls._without_rewards(LocalProvisioner(folder, num_servers), allowed_tools, output_parsers)
        except BaseException:
            remove_tree(folder)
            raise
        env._rewards = dict(rewards or {})
        env._folder = folder
        return env

    @classmethod
    def for_tools(cls, provisioner: BaseProvisioner) -> Self:
        """An environment that only calls tools: its workdir needs no reward_fn.py."""
        return cls._without_rewards(provisioner)

    @classmethod
    def _without_rewards(
        cls,
        provisioner: BaseProvisioner,
        allowed_tools: Sequence[str] | None = None,
        output_parsers: Mapping[str, OutputParser] | None = None,
    ) -> Self:
        env = cls.__new__(cls)
        BaseEnv.__init__(env)
        env._set_up(provisioner, uuid4().hex, allowed_tools, output_parsers, Health())
        return env

    # The pool, opened once

    async def _open_quietly(self) -> None:
        with suppress(Exception):  # the first rollout raises it
            await self._open()

    async def _open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._pool.open())
        await asyncio.shield(self._opening)

    async def _with_pool(self, work: Callable[[ServerPool], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            await self._open()
            return await work(self._pool)

        return await self._io.run(run)

    @property
    def num_servers(self) -> int:
        """How many rollouts can run at once."""
        return self._pool.capacity or self._provisioner.num_servers

    async def warm(self, number: int | None = None, seconds: float = 120.0) -> int:
        """Start servers for `number` rollouts, or for all, before the first one asks. Returns how many are ready."""
        return await self._with_pool(lambda pool: pool.warm(number, seconds))

    async def state(self) -> list[dict[str, Any]]:
        """The state of every machine: leases, waits, starts, resets, calls, failures."""
        return await self._with_pool(lambda pool: pool.state())

    # Tools

    async def list_tools(self) -> list[ToolDefinition]:
        if self._tools is None:
            listed = await self._with_pool(lambda pool: pool.tools(_LIST_SECONDS))
            tools = [ToolDefinition(each["name"], each["description"], each["input_schema"]) for each in listed]
            self._listed = {each["name"]: each.get("listed", each["name"]) for each in listed}
            self._tools = self._allow(tools)
        return list(self._tools)

    def _allow(self, tools: list[ToolDefinition]) -> list[ToolDefinition]:
        if self._allowed is None:
            return tools
        known = {self._listed[tool.name]: tool for tool in tools} | {tool.name: tool for tool in tools}
        if missing := [name for name in self._allowed if name not in known]:
            raise EnvDefinitionError(
                f"allowed_tools names {missing[0]!r}, which no server has. The tools are: {', '.join(known)}."
            )
        return [known[name] for name in self._allowed]

    async def run_tool(self, rollout_id: str, tool_name: str, /, **tool_args: Any) -> Any:
        """Call a tool. Returns its text, or a ToolResult when it failed or has images."""
        if self._allowed is not None and self._tools is None:
            await self.list_tools()
        if self._allowed is not None and not {tool_name, self._listed.get(tool_name)} & set(self._allowed):
            raise ToolError(f"The tool {tool_name!r} is not allowed here. Use one of {', '.join(self._allowed)}.")
        seconds = _within_hook(limits.TOOL_SECONDS, _TOOL_MARGIN)
        try:
            raw = await self._io.run(
                lambda: self._pool.ask(rollout_id, "call", name=tool_name, arguments=tool_args, seconds=seconds)
            )
        except ToolError as error:
            return ToolResult(f"Error: {error}", is_error=True)
        result = as_tool_result(raw)
        if result.is_error:
            return result
        parser = self._parsers.get(tool_name) or self._parsers.get(self._listed.get(tool_name, ""))
        text = result.text if parser is None else parser(result.text)
        return ToolResult(str(text), parts=result.parts) if result.parts else text

    # Rollouts

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        """Wait until the rollout has its servers."""
        claim = object()
        try:
            with queueing():
                await self._with_pool(lambda pool: pool.acquire(rollout_id, limits.MCP_WAIT_SECONDS, claim))
        except BaseException:  # it may have been cancelled just as it got them
            self._io.begin(lambda: self._pool.abandon(rollout_id, claim))
            raise

    async def release_rollout(self, rollout_id: str) -> None:
        await self._io.run(lambda: self._pool.release(rollout_id))

    async def reset_rollout(self, rollout_id: str) -> None:
        """Give the rollout fresh servers and an empty workspace."""
        await self._io.run(lambda: self._pool.ask(rollout_id, "reset"))

    async def shutdown(self) -> None:
        if self._shut.is_set():
            return
        self._shut.set()
        try:
            await self._io.run(self._close)
        finally:  # also when cancelled
            await asyncio.to_thread(self._io.stop)
            if self._folder is not None:
                remove_tree(self._folder)
            if self._packed_workdir is not None:
                self._packed_workdir.drop()

    async def _close(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self._pool.close()

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        """Run the reward functions, then release the rollout."""
        given = {**(task or {}), **kwargs, "completion": messages or "", "rollout_id": rollout_id}
        given["ground_truth"] = (task or {}).get("ground_truth", "")
        scored = await (
            self._reward_remotely(rollout_id, given) if self._rewards is None else self._reward_locally(given)
        )
        await self.release_rollout(rollout_id)
        return {name: _reward_value(each) for name, each in scored.items()}

    async def _reward_remotely(self, rollout_id: str, given: dict[str, Any]) -> Mapping[str, Any]:
        task = {**given, "$starts": transcript_starts(given)}
        seconds = _within_hook(limits.REWARD_SECONDS, _REWARD_MARGIN)
        scored: Mapping[str, Any] = await self._io.run(
            lambda: self._pool.ask(rollout_id, "reward", task=task, seconds=seconds)
        )
        return scored

    async def _reward_locally(self, given: dict[str, Any]) -> Mapping[str, Any]:
        from benchmax.envs.mcp.agent.reward_worker import score

        rollout_id = given["rollout_id"]
        await self._io.run(lambda: self._pool.ask(rollout_id, "check"))
        workspace = Path(self._pool.lease(rollout_id).workspace)
        return await score(
            self._rewards or {}, {**given, "workspace": workspace, "mcp_client": self.client(rollout_id)}
        )

    def client(self, rollout_id: str) -> McpClient:
        """The `mcp_client` that reward functions get."""

        async def ask(what: str, given: dict[str, Any]) -> Any:
            if what == "tools":
                return await self._with_pool(lambda pool: pool.tools(_LIST_SECONDS))
            return await self._io.run(lambda: self._pool.ask(rollout_id, what, **given, seconds=limits.TOOL_SECONDS))

        return McpClient(ask)

    # Workspaces

    async def copy_to_workspace(self, rollout_id: str, src_path: Path, dst_filename: str | None = None) -> None:
        source = Path(src_path)
        data = await asyncio.to_thread(read_file, source)
        await self._io.run(lambda: self._pool.put(rollout_id, dst_filename or source.name, data))

    async def copy_content_to_workspace(
        self, rollout_id: str, src_content: str | bytes, dst_filename: str, encoding: str = "utf-8"
    ) -> None:
        data = src_content.encode(encoding) if isinstance(src_content, str) else bytes(src_content)
        await self._io.run(lambda: self._pool.put(rollout_id, dst_filename, data))

    async def copy_from_workspace(self, rollout_id: str, src_filename: str, dst_path: Path) -> None:
        data = await self._read_workspace(rollout_id, src_filename)
        await asyncio.to_thread(Path(dst_path).write_bytes, data)

    async def _read_workspace(self, rollout_id: str, name: str) -> bytes:
        try:
            return await self._io.run(lambda: self._pool.get(rollout_id, name))
        except NotFoundError as error:  # of the agent, whose own classes do not exist here
            raise MissingFile(str(error)) from None


def _within_hook(default: float, margin: float) -> float:
    """A timeout a little shorter than the hook's own, so that the more specific error comes first."""
    given = current_hook_seconds.get() or default
    return given - min(margin, _LARGEST_MARGIN * given)


def _reward_value(scored: Mapping[str, Any]) -> RewardValue:
    if "value" in scored:
        return float(scored["value"])
    if "unscored" in scored:
        return Unscored(str(scored["unscored"]))
    error = rebuild(scored.get("error") or {})
    return Unscored(f"{type(error).__name__}: {error}")
