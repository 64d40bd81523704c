"""The MCP servers of one rollout: fresh processes that share a private directory, and their tools as one list."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from benchmax.cross_loop import settle
from benchmax.envs.mcp.agent.rollout_dirs import RolloutDirs
from benchmax.envs.mcp.agent.server_launcher import Server, ServerLauncher
from benchmax.envs.mcp.client.mcp_session import NoAnswer, RpcError
from benchmax.envs.mcp.client.tool_schemas import valid_schema
from benchmax.errors import McpError, ToolError
from benchmax.files.temp_dirs import remove_tree

LIST_SECONDS = 20.0
LOSS_SECONDS = 1.5
"""How long to wait for the reason why a server was lost."""
DESCRIPTION_CHARS = 16_384
API_NAME_CHARS = 64
_API_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The tool names that model APIs accept."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as rollouts see it, and its server."""

    name: str
    server: int
    own_name: str
    description: str
    input_schema: dict[str, Any] | None
    read_only: bool
    repeatable: bool
    """Whether calling it twice has the same effect as calling it once."""
    as_task: bool = False
    """Whether the server runs it only as a task."""
    listed: str = ""
    """Its name as the server lists it, prefixed with the server's name where there are several."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "listed": self.listed, "description": self.description,
            "input_schema": self.input_schema, "read_only": self.read_only, "repeatable": self.repeatable,
        }  # fmt: skip


class ServerSet:
    """The servers of one rollout."""

    def __init__(self, servers: Sequence[Server], dirs: RolloutDirs, tools: Mapping[str, Tool]) -> None:
        self._servers = servers
        self.dirs = dirs
        self.tools = tools
        self.since = monotonic()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why a server was lost, once one is."""
        self._stopping = False
        self._watchers = [asyncio.ensure_future(self._watch(server)) for server in servers]

    async def _watch(self, server: Server) -> None:
        """End the rollout with a server that crashed, closed its output or flooded it."""
        child, failed = server.child, server.session.failed
        ends: list[asyncio.Future[Any]] = [failed, *([child.ended] if child else [])]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if child is not None and child.ended.done():
            reason = await server.death()
            server.session.fail(reason)
        else:
            reason = server.with_lines(failed.result())
            if child is not None:
                child.kill()
        if not self.lost.done() and not self._stopping:
            self.lost.set_result(reason)

    async def check(self) -> None:
        """McpError when a server is lost or about to be, as the rollout must not be scored for it."""
        ending = [server.session.failed for server in self._servers if server.session.ending]
        if ending or any(server.session.lost for server in self._servers):
            await asyncio.wait([self.lost, *ending], timeout=LOSS_SECONDS)
            await asyncio.wait([self.lost], timeout=LOSS_SECONDS)
        if self.lost.done():
            raise McpError(self.lost.result())

    @property
    def pids(self) -> list[int]:
        return [server.child.pid for server in self._servers if server.child is not None]

    def tool(self, name: str) -> Tool:
        found = self.tools.get(name) or next((each for each in self.tools.values() if each.listed == name), None)
        if found is not None:
            return found
        raise ToolError(f"There is no tool named {name!r}. The tools are: {', '.join(self.tools)}.")

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """A tool's raw result. ToolError when only this call failed, McpError when the server is lost."""
        tool = self.tool(name)
        try:
            return await self._servers[tool.server].session.call(tool.own_name, arguments, seconds, tool.as_task)
        except (RpcError, NoAnswer) as error:  # the server itself still runs
            raise ToolError(str(error)) from None
        except McpError:
            if self._servers[tool.server].child is not None:  # its exit status arrives in a moment
                await asyncio.wait([self.lost], timeout=LOSS_SECONDS)
            if self.lost.done():
                raise McpError(self.lost.result()) from None
            raise

    async def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Ask the servers in turn until one answers; for resources and prompts."""
        failure: McpError | None = None
        for server in self._servers:
            try:
                return await server.session.request(method, params, seconds)
            except McpError as error:
                failure = error
        raise failure or McpError("There is no MCP server to ask.")

    async def healthy(self, seconds: float) -> bool:
        """Whether every server answers."""
        if self.lost.done():
            return False
        try:
            await asyncio.gather(*(server.session.ping(seconds) for server in self._servers))
        except McpError:
            return False
        return not self.lost.done()

    async def stop(self) -> None:
        """End the servers with their child processes, and remove the directory."""
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(server.stop() for server in self._servers))
        await asyncio.to_thread(remove_tree, self.dirs.own)
        settle(self.lost, "The MCP servers were stopped.")


class ServerSetLauncher:
    """Starts server sets. The first one's tools count: what a server lists later is ignored."""

    def __init__(self, launcher: ServerLauncher, root: Path) -> None:
        self._launcher = launcher
        self._root = root
        self.tools: dict[str, Tool] | None = None
        self.left_out: dict[str, str] = {}
        """Tools, and parts of their schemas, that are listed but cannot be offered to models, and why."""

    async def launch(self) -> ServerSet:
        dirs = RolloutDirs.make(self._root)
        starting = [asyncio.ensure_future(self._launcher.start(spec, dirs)) for spec in self._launcher.specs]
        try:
            await asyncio.wait(starting)
            servers = [task.result() for task in starting]
            if self.tools is None:
                self.tools = await self._list(servers)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.wait(starting)
            started = [task.result() for task in starting if not task.cancelled() and task.exception() is None]
            await asyncio.gather(*(server.stop() for server in started))
            await asyncio.to_thread(remove_tree, dirs.own)
            raise
        return ServerSet(servers, dirs, self.tools)

    async def _list(self, servers: Sequence[Server]) -> dict[str, Tool]:
        listed = await asyncio.gather(*(server.explained(server.session.tools(LIST_SECONDS)) for server in servers))
        read: list[Tool] = []
        for index, (server, found) in enumerate(zip(servers, listed, strict=True)):
            prefix = f"{server.spec.name}_" if len(servers) > 1 else ""
            own: set[str] = set()
            for raw in found:
                tool = _read_tool(raw, index, prefix)
                if tool is None:
                    name = raw.get("name") if isinstance(raw, Mapping) else raw
                    self.left_out[f"{prefix}{name!r:.80}"] = "a name is a text that is not empty"
                    continue
                if tool.own_name in own:
                    self.left_out[f"{tool.listed} (again)"] = "the server lists it twice, and the first one is taken"
                    continue
                own.add(tool.own_name)
                schema, faults = valid_schema(raw.get("inputSchema"))
                self.left_out |= {f"{part} of {tool.listed}": reason for part, reason in faults.items()}
                read.append(replace(tool, input_schema=schema))
        return _named(read)


def _named(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools by distinct names that model APIs accept: the listed name where possible, else a similar one."""
    names: dict[str, Tool] = {}
    for tool in tools:
        if _API_NAME.fullmatch(tool.listed):
            names.setdefault(tool.listed, tool)
    taken = {id(tool): name for name, tool in names.items()}
    for tool in tools:
        if id(tool) not in taken:
            plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool.listed)
            if len(plain) > API_NAME_CHARS or plain in names or not plain.strip("_-"):
                digest = hashlib.sha256(f"{tool.server} {tool.own_name}".encode()).hexdigest()[:8]
                plain = f"{plain[: API_NAME_CHARS - 9]}_{digest}"
            taken[id(tool)] = plain
            names[plain] = tool
    return {name: replace(tool, name=name) for tool in tools for name in [taken[id(tool)]]}


def _read_tool(raw: Any, server: int, prefix: str) -> Tool | None:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    if not isinstance(name, str) or not name:
        return None
    notes, execution = raw.get("annotations"), raw.get("execution")
    notes = notes if isinstance(notes, Mapping) else {}
    read_only = notes.get("readOnlyHint") is True
    return Tool(
        name=prefix + name,
        listed=prefix + name,
        server=server,
        own_name=name,
        description=str(raw.get("description") or raw.get("title") or "")[:DESCRIPTION_CHARS],
        input_schema=None,
        read_only=read_only,
        repeatable=read_only or notes.get("idempotentHint") is True,
        as_task=isinstance(execution, Mapping) and execution.get("taskSupport") == "required",
    )
