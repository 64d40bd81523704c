"""The process that runs the reward functions of one rollout, on the machine that has its files.

It is forked for each reward, so that a function that hangs, crashes or fills the memory affects its own rollout alone.
It exchanges frames with the agent over descriptor 3, and calls the rollout's servers through it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.cross_loop import settle
from benchmax.envs.logging import log_env
from benchmax.envs.mcp.client.reward_client import McpClient
from benchmax.envs.remote.wire import FrameProtocol, answer_of, describe, pack, restore_transcripts

CHANNEL = 3


class Channel(FrameProtocol):
    """Frames to and from the agent."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._lock = threading.Lock()
        self.task: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        os._exit(1)  # the agent is gone

    def received(self, message: dict[str, Any]) -> None:
        if "task" in message:
            self.task.set_result(message["task"])
        elif (future := self._waiting.pop(message.get("id", -1), None)) is not None:
            settle(future, *answer_of(message))

    async def ask(self, what: str, given: dict[str, Any]) -> Any:
        self._number += 1
        future = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        self.send({"id": self._number, "ask": what, "given": given})
        return await future

    def send(self, message: Mapping[str, Any]) -> None:
        """Send from any thread, as plain functions log from theirs; blocks while the agent is busy."""
        frame = memoryview(pack(message))
        with self._lock:
            while frame:
                try:
                    frame = frame[self._sock.send(frame) :]
                except BlockingIOError:
                    select.select([], [self._sock], [])


class _ToAgent(logging.Handler):
    def __init__(self, channel: Channel) -> None:
        super().__init__(logging.INFO)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()[: limits.LOG_LINE_CHARS]
        self._channel.send({"log": [record.levelno, record.name, line]})


def load_rewards(path: Path) -> dict[str, Callable[..., Any]]:
    """The reward functions that a file defines."""
    namespace: dict[str, Any] = {"__name__": "reward_fn", "__file__": str(path), "log_env": log_env}
    exec(compile(path.read_bytes(), str(path), "exec"), namespace)  # noqa: S102 - the environment's own rewards
    found = namespace.get("reward_functions")
    if not isinstance(found, Mapping) or not all(callable(each) for each in found.values()):
        raise ValueError(f"{path.name} must define reward_functions, a dict of names and functions. Add it.")
    if not found:
        raise ValueError(f"reward_functions in {path.name} is empty. Add a function.")
    return {str(name): function for name, function in found.items()}


async def score(functions: Mapping[str, Callable[..., Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Each function's value or error; one that fails does not affect the others."""
    names = list(functions)
    results = await asyncio.gather(*(_one(functions[name], given) for name in names))
    return dict(zip(names, results, strict=True))


async def _one(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        given = _accepted(function, given)
        if inspect.iscoroutinefunction(function):
            value = await function(**given)
        else:
            value = await asyncio.to_thread(function, **given)
            if inspect.isawaitable(value):
                value = await value
        return _checked(value)
    except (Exception, SystemExit) as error:
        return {"error": describe(error)}


def _checked(value: Any) -> dict[str, Any]:
    if callable(getattr(value, "item", None)):
        value = value.item()
    if not isinstance(value, int | float) or abs(value) > sys.float_info.max or math.isnan(value):
        return {"unscored": f"it returned {value!r:.100}, which is not a finite number"}
    return {"value": float(value)}


def _accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """All arguments, or those that the function names when it takes no **kwargs."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return given
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


async def _serve(sock: socket.socket, path: Path) -> None:
    channel = Channel(sock)
    await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=sock)
    logging.root.addHandler(_ToAgent(channel))
    logging.root.setLevel(logging.INFO)
    task = await channel.task
    try:
        functions = load_rewards(path)
        restore_transcripts(task, task.pop("$starts", {}))
        given = {**task, "mcp_client": McpClient(channel.ask), "workspace": Path(task["workspace"])}
        channel.send({"rewards": await score(functions, given)})
    except BaseException as error:
        channel.send({"failed": describe(error)})


def main() -> None:
    path = Path(sys.argv[1])
    sys.path.insert(0, str(path.parent))
    asyncio.run(_serve(socket.socket(fileno=CHANNEL), path))
    os._exit(0)  # without waiting for threads that a function left


if __name__ == "__main__":
    main()
