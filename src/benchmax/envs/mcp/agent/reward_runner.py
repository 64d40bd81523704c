"""Runs reward functions in a fresh process with a deadline, which may call the rollout's servers.

The process itself runs reward_worker.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmax.cross_loop import settle
from benchmax.envs.mcp.agent.rollout_dirs import RolloutDirs
from benchmax.envs.mcp.agent.server_launcher import user_packages
from benchmax.envs.mcp.agent.server_set import ServerSet
from benchmax.envs.mcp.client.output_tail import OutputTail
from benchmax.envs.mcp.fork.python_program import PythonProgram
from benchmax.envs.mcp.fork.server_sandbox import SandboxRules, ServerBox
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.envs.remote.wire import FrameProtocol, describe, rebuild
from benchmax.errors import McpError, RewardError
from benchmax.sandbox import Ended, Process

START_SECONDS = 30.0
MODULE = "benchmax.envs.mcp.agent.reward_worker"

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
Log = Callable[[int, str, str], None]


class RewardRunner:
    """Runs the functions of reward_fn.py."""

    def __init__(self, reward_file: Path, rules: SandboxRules, python: str, path: str, root: Path) -> None:
        self._file = reward_file
        self._rules = replace(rules, read=(*rules.read, str(reward_file.parent)))
        self._root = root
        self._python = python
        self._path = path
        self._box: ServerBox | None = None

    async def compute(
        self, servers: ServerSet, task: Mapping[str, Any], ask: Ask, log: Log, seconds: float
    ) -> dict[str, Any]:
        """Name → {"value"}, {"unscored"} or {"error"}; RewardError when no function could run."""
        box = await self._ready_box()
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDONLY)
        out_read, out_write = os.pipe()
        loop = asyncio.get_running_loop()
        _, tail = await loop.connect_read_pipe(
            lambda: OutputTail(lambda line: log(20, "reward_fn", line)), os.fdopen(out_read, "rb", 0)
        )
        connection, child = _Connection(ask, log), None
        await loop.create_unix_connection(lambda: connection, sock=ours)
        fds = [null, out_write, os.dup(out_write), theirs.detach()]
        variables = self._variables(servers.dirs)
        try:
            child = await box.spawn([str(self._file)], servers.dirs.own, variables, fds, forked=True)
            connection.send({"task": {**task, "workspace": str(servers.dirs.workspace)}})
            return await self._wait(child, connection, tail, seconds)
        finally:
            if child is not None:
                child.kill()
            connection.close()
            tail.close()

    def _variables(self, dirs: RolloutDirs) -> dict[str, str]:
        return {**scrubbed_environment(), **user_packages(), "PATH": self._path, **dirs.variables()}

    async def _wait(self, child: Process, connection: _Connection, tail: OutputTail, seconds: float) -> dict[str, Any]:
        both: list[asyncio.Future[Any]] = [connection.outcome, child.ended]
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not connection.outcome.done() and child.ended.done():
            await asyncio.wait([connection.closed], timeout=0.5)  # its last message may still arrive
        if connection.outcome.done():
            return connection.outcome.result()
        if not child.ended.done():
            raise RewardError(f"The reward functions took longer than {seconds:g} s. Make them faster.")
        await asyncio.wait([tail.closed], timeout=0.5)
        ended = Ended.of(child.ended)
        if ended.failure is not None:
            raise RewardError(f"The process of the reward functions is lost. {ended.failure}")
        lines = "\n".join(tail.lines)
        raise RewardError(f"The reward functions ended their process (status {ended.exit}). {lines}".strip())

    async def _ready_box(self) -> ServerBox:
        if self._box is None:
            dirs = RolloutDirs.make(self._root)
            python = PythonProgram(
                "function", MODULE, own=str(dirs.own), also=(str(self._file),), interpreter=self._python
            )
            self._box = ServerBox(
                self._rules, self._root, self._variables(dirs), python, name="the rewards", trusted=True
            )
        try:
            await asyncio.wait_for(self._box.forking(), START_SECONDS)
        except TimeoutError:
            raise RewardError(
                f"The process for rewards is not ready after {START_SECONDS:g} s. Check what reward_fn.py imports."
            ) from None
        except McpError as error:
            raise RewardError(f"The process for rewards cannot be started. {error}") from None
        return self._box

    async def close(self) -> None:
        if self._box is not None:
            await self._box.close()


class _Connection(FrameProtocol):
    """The channel to one reward process."""

    def __init__(self, ask: Ask, log: Log) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._ask, self._log = ask, log
        self._asking: set[asyncio.Task[None]] = set()
        self.outcome: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except ValueError:
            self.close()

    def received(self, message: dict[str, Any]) -> None:
        if "log" in message:
            level, name, line = message["log"]
            self._log(int(level), str(name), str(line))
        elif "ask" in message:
            task = asyncio.ensure_future(self._answer(message))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        elif "rewards" in message and not self.outcome.done():
            self.outcome.set_result(dict(message["rewards"]))
        elif "failed" in message and not self.outcome.done():
            error = rebuild(message["failed"])
            self.outcome.set_exception(RewardError(f"reward_fn.py cannot be used: {type(error).__name__}: {error}"))

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            self.send({"id": message["id"], "ok": await self._ask(str(message["ask"]), dict(message["given"]))})
        except Exception as error:
            self.send({"id": message["id"], "error": describe(error)})

    def connection_lost(self, error: Exception | None) -> None:
        settle(self.closed, None)

    def close(self) -> None:
        for task in self._asking:
            task.cancel()
        super().close()
