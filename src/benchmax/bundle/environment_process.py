"""The process in which an environment runs, started by `RemoteEnv`.

    python -m benchmax.bundle.environment_process FD [confined]

It limits itself, opens the environment, describes it, and then runs the hooks that are requested over the socket
FD. When the socket closes, the process that started it is gone, and its guard ends it and all it started; in a sandbox
(`confined`) the sandbox does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.bundle.load import allow_loading, load_bundle
from benchmax.bundle.metadata import read_bundle_files
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.demonstration import turn_after, turn_to_json
from benchmax.envs.legacy import is_old_group_reward, is_old_reward
from benchmax.envs.loading import load_env_class, own_json_rows
from benchmax.envs.logging import current_rollouts, group_context
from benchmax.envs.normalise_rewards import normalise_rewards
from benchmax.envs.remote.preprocess import batch_outcomes
from benchmax.envs.remote.proxy import ATTRIBUTES
from benchmax.envs.remote.reaper import go_under_guard
from benchmax.envs.remote.wire import FRAME_BYTES, FrameProtocol, Frames, describe, pack, restore_transcripts
from benchmax.envs.types import ToolDefinition, Unscored
from benchmax.errors import EnvDefinitionError, EnvError, RewardError
from benchmax.files.display import readable_bytes
from benchmax.files.links import read_plain
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.toolbox import as_result

HOOKS = [name for name, value in vars(BaseEnv).items() if callable(getattr(BaseEnv, name)) and not name.startswith("_")]
FOREVER = 7 * 86_400.0
"""Deadlines are the caller's, who abandons a call by a message."""
STACK_BYTES = 2 * 1024 * 1024
"""Stack of a thread; the usual 8 MiB each would count against the memory limit."""


def main() -> None:
    confined = sys.argv[2:] == ["confined"]
    if len(sys.argv) != 2 + confined:
        sys.exit("RemoteEnv starts this program; run an environment with `benchmax eval` instead.")
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.set_inheritable(False)
    if not confined:
        # This process may not notice that the starter is gone: C code may hold it.
        go_under_guard(wire.fileno(), remove=Path.cwd().parents[1])  # that of all the processes and their bundle
    faulthandler.enable(all_threads=False)
    frames = Frames()
    messages: list[dict[str, Any]] = []
    while not messages:
        data = wire.recv(65_536)
        if not data:
            return
        messages = list(frames.feed(data))
    instructions, *rest = messages
    _limit_self(instructions)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    code = asyncio.run(Worker(instructions, frames, rest).serve(wire))
    sys.stdout.flush()
    os._exit(code)  # threads that hang must not delay the end


def _limit_self(instructions: Mapping[str, Any]) -> None:
    if sys.platform == "linux":
        # When the machine runs out of memory, the kernel ends an environment rather than the trainer.
        with suppress(OSError):  # a score that is higher already may not be lowered
            Path("/proc/self/oom_score_adj").write_text("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = instructions["open_files"] if hard == resource.RLIM_INFINITY else min(hard, instructions["open_files"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if instructions["memory_bytes"]:
        # Private memory rather than address space: allocators and runtimes reserve far more of it than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (instructions["memory_bytes"], instructions["memory_bytes"]))
        threading.stack_size(STACK_BYTES)
    if instructions["nice"]:
        os.nice(instructions["nice"])


def _make_env(instructions: Mapping[str, Any]) -> BaseEnv:
    if "bundle" in instructions:
        allow_loading()
        folder = Path(instructions["bundle"])
        env = load_bundle(read_bundle_files(folder / "env-cls.pkl", folder / "env-metadata.json"))
        assert isinstance(env, BaseEnv)
        return env
    sys.path.insert(0, instructions["path"])
    return load_env_class(instructions["spec"])(**instructions["args"])


class Worker(FrameProtocol):
    """Serves one environment over one socket."""

    from_threads = True

    def __init__(self, instructions: Mapping[str, Any], frames: Frames, early: list[dict[str, Any]]) -> None:
        super().__init__(frames)
        self._instructions = instructions
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._early = early
        """Messages that came before the environment was open."""
        self._host: EnvHost | None = None

    async def serve(self, wire: socket.socket) -> int:
        """Serve until asked to stop; returns the exit code."""
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        await self._loop.create_unix_connection(lambda: self, sock=wire)
        logging.getLogger().addHandler(_Relay(self.send))
        stall = limits.STALL_SECONDS
        limits.STALL_SECONDS = limits.INIT_SECONDS = self._instructions["start_seconds"]  # for opening it
        try:
            async with EnvHost(lambda: _make_env(self._instructions)) as host:
                limits.STALL_SECONDS = stall
                self.send({"hello": await _hello(host)})
                self._host = host
                for message in self._early:
                    self.received(message)
                await self._stopped.wait()
        except Exception as error:
            self.send({"failed": describe(error)})
            self.flush()
            return 1
        self.flush()
        return 0

    # The socket

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.call_later(0.5, os.killpg, 0, signal.SIGKILL)  # the guard is faster, unless it is gone

    def received(self, message: dict[str, Any]) -> None:
        if self._host is None:
            self._early.append(message)
        elif "call" in message:
            task = self._loop.create_task(self._serve_call(message))
            self._tasks[message["id"]] = task
        elif "cancel" in message:
            self.send({"cancelled": message["cancel"]})
            if (known := self._tasks.get(message["cancel"])) is not None:
                known.cancel()
        elif "stop" in message:
            self._stopped.set()

    # Calls

    async def _serve_call(self, message: dict[str, Any]) -> None:
        number, hook = message["id"], message["call"]
        try:
            value = await self._call(hook, message)
            frame = _packed_result(number, hook, value)
        except asyncio.CancelledError:
            return
        except MemoryError:
            frame = pack({"id": number, "error": self._out_of_memory(hook)})
        except Exception as error:
            frame = pack({"id": number, "error": describe(error)})
        finally:
            self._tasks.pop(number, None)
        self.send_frame(frame)

    async def _call(self, hook: str, message: dict[str, Any]) -> Any:
        host = self._host
        assert host is not None
        args, kwargs, rollouts = message["args"], message["kwargs"], message["rollouts"]
        if hook in ("copy_in", "copy_out"):
            return await _copy(host, hook, *args)
        if hook == "preprocess":
            return await asyncio.to_thread(_preprocess, type(host.env), *args)
        if hook == "own_rows":
            return await asyncio.to_thread(own_json_rows, type(host.env), *args)
        if hook not in HOOKS:
            raise EnvError(f"There is no hook named {hook!r}. Use the same benchmax on both sides.")
        if hook == "demonstrate":
            turn = await host.perform(turn_after, host.env.demonstrate, *args, deadline=FOREVER, label=hook)
            return turn_to_json(turn)
        restore_transcripts(kwargs, message.get("starts", {}))
        tool = str(args[1]) if hook == "run_tool" else ""
        with group_context(rollouts):
            value = await host.outcome(host.start(hook, tuple(args), kwargs, tool), FOREVER)
        return _plain(hook, value)

    def _out_of_memory(self, hook: str) -> dict[str, Any]:
        most = self._instructions["memory_bytes"]
        limit = f" at its memory limit {readable_bytes(most)}" if most else ""
        return {"type": "MemoryError", "message": f"{hook} ran out of memory{limit}. Use less, or raise the limit."}


async def _copy(host: EnvHost, hook: str, rollout: str, given: Any, *names: Any) -> bytes | None:
    """Files for a workspace, or from it, by content, as the other side's files are invisible from a sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(names[0]).name if names else "out")
        if hook == "copy_in":
            await asyncio.to_thread(path.write_bytes, given)
            await host.call("copy_to_workspace", rollout, path, names[1], deadline=FOREVER)
            return None
        await host.call("copy_from_workspace", rollout, given, path, deadline=FOREVER)
        return read_plain(Path(folder), "out", FRAME_BYTES)


def _packed_result(number: int, hook: str, value: Any) -> bytes:
    try:
        return pack({"id": number, "ok": value})
    except (TypeError, ValueError) as error:
        raise EnvError(f"What {hook} returned cannot leave its process: {error}. Return plain JSON values.") from None


def _plain(hook: str, value: Any) -> Any:
    """What a hook returned, in the form the other side expects."""
    if hook == "run_tool":
        return value if isinstance(value, str) else as_result(value)
    if hook == "compute_reward":
        return _plain_rewards(value)
    if hook == "compute_group_reward":
        if not isinstance(value, list | tuple):
            raise RewardError(
                f"compute_group_reward returned {type(value).__name__}. Return a list with one dict per rollout."
            )
        return [_plain_rewards(each) for each in value]
    if hook in ("list_tools", "list_part_tools"):
        return _plain_tools(value)
    if hook == "gold_tool_calls":
        return [call.to_dict() for call in value]
    return value


def _plain_rewards(value: Any) -> dict[str, float | Unscored]:
    scored, missing = normalise_rewards(value)
    return {**scored, **{name: Unscored(reason) for name, reason in missing.items()}}


def _plain_tools(value: Any) -> list[Any]:
    wrong = [] if isinstance(value, Iterable) else [value]
    tools = [] if wrong else list(value)
    wrong += [tool for tool in tools if not isinstance(tool, ToolDefinition | dict)]
    if wrong and value is not None:
        raise EnvDefinitionError(f"list_tools returned {type(wrong[0]).__name__}. Return a list of ToolDefinition(…).")
    return tools


def _preprocess(env_class: type[BaseEnv], rows: list[Any]) -> list[Any]:
    return list(batch_outcomes(rows, lambda row: load_examples([row], env_class, lenient=True)))


async def _hello(host: EnvHost) -> dict[str, Any]:
    """The description of the environment for the other side."""
    env = host.env
    old = [
        name
        for name, is_old in (("compute_reward", is_old_reward), ("compute_group_reward", is_old_group_reward))
        if is_old(getattr(env, name))
    ]
    tokens = await host.call("estimate_rollout_tokens", deadline=limits.TOOL_SECONDS)
    return {
        "name": type(env).__name__,
        "doc": type(env).__doc__,
        "attributes": {name: getattr(env, name) for name in ATTRIBUTES},
        "overrides": [hook for hook in HOOKS if overrides(env, hook)],
        "old_style": old,
        "tokens": tokens,
    }


class _Relay(logging.Handler):
    """Sends log lines to the other side, with the rollouts they belong to."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(logging.INFO)
        self._send = send
        self._lines: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        rollouts = [each for each in current_rollouts() if self._may_send(each)]
        if current_rollouts() and not rollouts:
            return
        try:
            text = record.getMessage()[: limits.LOG_LINE_CHARS]
            self._send({"log": [record.levelno, record.name, text, rollouts]})
        except Exception:  # a line that cannot be formatted is lost
            self.handleError(record)

    def _may_send(self, rollout: str) -> bool:
        """Send no more lines than a record keeps, or a hook that logs much would fill the socket."""
        count = self._lines[rollout] = self._lines.pop(rollout, 0) + 1
        if len(self._lines) > 10_000:
            del self._lines[next(iter(self._lines))]
        return count <= limits.LOG_LINES


if __name__ == "__main__":
    main()
