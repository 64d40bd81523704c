"""The agent's side of a reward: a fresh process for it, bounded in time, that may ask the rollout's servers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmax.envs.mcp.agent.server_set import Seat
from benchmax.envs.mcp.agent.servers import Places, user_packages
from benchmax.envs.mcp.client.mcp_session import Tail
from benchmax.envs.mcp.fork.fork_server_client import Child, Nursery, Program, Rules
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.envs.remote.wire import Frames, describe, pack, rebuild
from benchmax.errors import RewardError

START_SECONDS = 30.0
MODULE = "benchmax.envs.mcp.agent.reward_worker"

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
Log = Callable[[int, str, str], None]


class Rewards:
    """Runs the functions of reward_fn.py."""

    def __init__(self, reward_file: Path, rules: Rules, python: str, path: str, root: Path) -> None:
        self._file = reward_file
        self._rules = replace(rules, read=(*rules.read, str(reward_file.parent)), write=(str(root),))
        self._root = root
        self._python = python
        self._path = path
        self._nursery: Nursery | None = None

    async def compute(self, seat: Seat, task: Mapping[str, Any], ask: Ask, log: Log, seconds: float) -> dict[str, Any]:
        """Name → {"value"}, {"unscored"} or {"error"}; RewardError when there are none at all."""
        nursery = await self._parent()
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDONLY)
        out_read, out_write = os.pipe()
        loop = asyncio.get_running_loop()
        _, tail = await loop.connect_read_pipe(
            lambda: Tail(lambda line: log(20, "reward_fn", line)), os.fdopen(out_read, "rb", 0)
        )
        own, variables = seat.places.own, self._variables(seat.places)
        fds = [null, out_write, os.dup(out_write), theirs.detach()]
        child = await nursery.spawn([str(self._file)], str(seat.places.workspace), variables, [str(own)], fds)
        connection = _Connection(ask, log)
        await loop.create_unix_connection(lambda: connection, sock=ours)
        try:
            connection.say({"task": {**task, "workspace": str(seat.places.workspace)}})
            return await self._wait(child, connection, tail, seconds)
        finally:
            child.kill()
            connection.close()
            tail.close()

    def _variables(self, places: Places) -> dict[str, str]:
        return {**scrubbed_environment(), **user_packages(), "PATH": self._path, **places.variables()}

    async def _wait(self, child: Child, connection: _Connection, tail: Tail, seconds: float) -> dict[str, Any]:
        both: list[asyncio.Future[Any]] = [connection.outcome, child.ended]
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not connection.outcome.done() and child.ended.done():
            await asyncio.wait([connection.closed], timeout=0.5)  # its last words may still be on the way
        if connection.outcome.done():
            return connection.outcome.result()
        if not child.ended.done():
            raise RewardError(f"The reward functions took longer than {seconds:g} s. Make them faster.")
        await asyncio.wait([tail.closed], timeout=0.5)
        lines = "\n".join(tail.lines)
        raise RewardError(f"The reward functions ended their process (status {child.ended.result()}). {lines}".strip())

    async def _parent(self) -> Nursery:
        if self._nursery is None or self._nursery.dead:
            places = Places.make(self._root)
            python = Program("function", MODULE, own=str(places.own), also=(str(self._file),))
            self._nursery = Nursery(self._python, self._rules, self._variables(places), python)
            self._nursery.start()
        nursery = self._nursery
        await asyncio.wait([nursery.ready], timeout=START_SECONDS)
        if not nursery.ready.done() or nursery.dead:
            raise RewardError("The process for rewards cannot be started. Check what reward_fn.py imports.")
        return nursery

    async def close(self) -> None:
        if self._nursery is not None:
            await self._nursery.close()


class _Connection(asyncio.Protocol):
    """The channel to one reward process."""

    def __init__(self, ask: Ask, log: Log) -> None:
        loop = asyncio.get_running_loop()
        self._ask, self._log = ask, log
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self.outcome: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._heard(message)
        except ValueError:
            self.close()

    def _heard(self, message: dict[str, Any]) -> None:
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
            self.say({"id": message["id"], "ok": await self._ask(str(message["ask"]), dict(message["given"]))})
        except Exception as error:
            self.say({"id": message["id"], "error": describe(error)})

    def say(self, message: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(pack(message))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        for task in self._asking:
            task.cancel()
        if self._transport is not None:
            self._transport.close()
