"""The process in which an environment runs: `python -m benchmax.bundle.worker FD [confined]`, started by `RemoteEnv`.

It limits itself, opens the environment, says what it is, and then runs hooks as they are asked for over the socket
FD. When the socket closes, whoever started it is gone, and it ends itself and all it started; in a sandbox (`confined`)
that is the sandbox's to do.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.bundle.load import allow_loading, load_bundle
from benchmax.bundle.metadata import read_bundle_files
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.demonstration import plain_turn, turn_after
from benchmax.envs.legacy import is_old_group_reward, is_old_reward
from benchmax.envs.loading import load_env_class
from benchmax.envs.logging import current_rollouts, group_context
from benchmax.envs.remote.preprocess import batch_outcomes
from benchmax.envs.remote.proxy import ATTRIBUTES
from benchmax.envs.remote.surroundings import readable_bytes
from benchmax.envs.remote.wire import FRAME_BYTES, Frames, describe, pack, restore_transcripts
from benchmax.envs.reward_values import normalise_rewards
from benchmax.envs.types import ToolDefinition, Unscored
from benchmax.errors import EnvDefinitionError, EnvError, RewardError
from benchmax.files.links import read_plain
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.toolbox import result_text

HOOKS = [name for name, value in vars(BaseEnv).items() if callable(getattr(BaseEnv, name)) and not name.startswith("_")]
FOREVER = 7 * 86_400.0
"""Deadlines are the caller's; it gives a call up by a message."""
STACK_BYTES = 2 * 1024 * 1024
"""Of a thread; the usual 8 MiB each would count against the memory limit."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    confined = sys.argv[2:] == ["confined"]
    if len(sys.argv) != 2 + confined:
        sys.exit("RemoteEnv starts this program; run an environment with `benchmax eval` instead.")
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.set_inheritable(False)
    faulthandler.enable(all_threads=False)
    if not confined:
        _set_guard(wire)
    frames = Frames()
    orders: list[dict[str, Any]] = []
    while not orders:
        data = wire.recv(65_536)
        if not data:
            return
        orders = list(frames.feed(data))
    first, *rest = orders
    _limit_self(first)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    code = asyncio.run(Worker(first).serve(wire, frames, rest))
    sys.stdout.flush()
    os._exit(code)  # threads that hang must not hold the end


def _set_guard(wire: socket.socket) -> None:
    """Leave a small process behind that ends this session, and removes its files, when the starter is gone.

    This process may not notice: it may be held by C code, or be killed along with the starter before it can end what
    it has started. The guard is nobody's child, so that an environment that waits for its children does not meet it.
    """
    if (between := os.fork()) != 0:
        os.waitpid(between, 0)
        return
    if os.fork() != 0:
        os._exit(0)
    folder = Path.cwd().parents[1]  # that of all the processes and their bundle
    for stream in (1, 2):
        os.close(stream)
    poller = select.poll()
    poller.register(wire, getattr(select, "POLLRDHUP", 0) | select.POLLHUP)
    poller.poll()
    group = os.getpgrp()
    os.setsid()  # else it would kill itself before it has tidied up
    os.killpg(group, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _limit_self(orders: Mapping[str, Any]) -> None:
    if sys.platform == "linux" and orders["parent"] is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != orders["parent"]:  # it died before the line above
            os._exit(1)
        _offer_self()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = orders["open_files"] if hard == resource.RLIM_INFINITY else min(hard, orders["open_files"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if orders["memory_bytes"]:
        # Private memory rather than address space: allocators and runtimes reserve far more of it than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (orders["memory_bytes"], orders["memory_bytes"]))
        threading.stack_size(STACK_BYTES)
    if orders["nice"]:
        os.nice(orders["nice"])


def _offer_self() -> None:
    """When the machine's memory runs out the kernel ends an environment, and not who trains on it."""
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:  # one that stands higher already may not come down
        pass


def _make_env(orders: Mapping[str, Any]) -> BaseEnv:
    if "bundle" in orders:
        allow_loading()
        folder = Path(orders["bundle"])
        env = load_bundle(read_bundle_files(folder / "env-cls.pkl", folder / "env-metadata.json"))
        assert isinstance(env, BaseEnv)
        return env
    sys.path.insert(0, orders["path"])
    return load_env_class(orders["spec"])(**orders["args"])


class Worker(asyncio.Protocol):
    """Serves one environment over one socket."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self._orders = orders
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._outbox: deque[bytes] = deque()
        self._flushing = False
        self._early: list[dict[str, Any]] = []

    async def serve(self, wire: socket.socket, frames: Frames, early: list[dict[str, Any]]) -> int:
        """Until told to stop; gives the exit code."""
        self._loop = asyncio.get_running_loop()
        self._frames, self._early = frames, early
        self._stopped = asyncio.Event()
        self._host: EnvHost | None = None
        transport, _ = await self._loop.create_unix_connection(lambda: self, sock=wire)
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        logging.getLogger().addHandler(_Relay(self._send))
        stall = limits.STALL_SECONDS
        limits.STALL_SECONDS = limits.INIT_SECONDS = self._orders["start_seconds"]  # opening may take its time
        try:
            async with EnvHost(lambda: _make_env(self._orders)) as host:
                limits.STALL_SECONDS = stall
                self._send(pack({"hello": await _hello(host)}))
                self._host = host
                for message in self._early:
                    self._heard(message)
                await self._stopped.wait()
        except Exception as error:
            self._send(pack({"failed": describe(error)}))
            self._flush()
            return 1
        self._flush()
        return 0

    # The socket

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            if self._host is None:
                self._early.append(message)
            else:
                self._heard(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.call_later(0.5, os.killpg, 0, signal.SIGKILL)  # the guard comes first, unless it is gone

    def _heard(self, message: dict[str, Any]) -> None:
        if "call" in message:
            task = self._loop.create_task(self._serve_call(message))
            self._tasks[message["id"]] = task
        elif "cancel" in message:
            self._send(pack({"heard": message["cancel"]}))
            if (known := self._tasks.get(message["cancel"])) is not None:
                known.cancel()
        elif "stop" in message:
            self._stopped.set()

    def _send(self, frame: bytes) -> None:
        """Send a frame; from any thread. Frames leave in the order they were given."""
        self._outbox.append(frame)
        if not self._flushing:
            self._flushing = True
            try:
                self._loop.call_soon_threadsafe(self._flush)
            except RuntimeError:  # the loop is closed: the process is about to end
                pass

    def _flush(self) -> None:
        self._flushing = False
        frames = [self._outbox.popleft() for _ in range(len(self._outbox))]
        if frames:
            self._transport.write(b"".join(frames))

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
        self._send(frame)

    async def _call(self, hook: str, message: dict[str, Any]) -> Any:
        host = self._host
        assert host is not None
        args, kwargs, rollouts = message["args"], message["kwargs"], message["rollouts"]
        if hook in ("copy_in", "copy_out"):
            return await _copy(host, hook, *args)
        if hook == "preprocess":
            return await asyncio.to_thread(_preprocess, type(host.env), *args)
        if hook not in HOOKS:
            raise EnvError(f"There is no hook named {hook!r}. Use the same benchmax on both sides.")
        if hook == "demonstrate":
            turn = await host.perform(turn_after, host.env.demonstrate, *args, deadline=FOREVER, label=hook)
            return plain_turn(turn)
        restore_transcripts(kwargs, message.get("starts", {}))
        tool = str(args[1]) if hook == "run_tool" else ""
        label = f"{hook} {tool}" if tool else hook
        with group_context(rollouts):
            value = await host.outcome(host.start(hook, tuple(args), kwargs, tool, label), FOREVER)
        return _plain(hook, value)

    def _out_of_memory(self, hook: str) -> dict[str, Any]:
        most = self._orders["memory_bytes"]
        limit = f" at its memory limit {readable_bytes(most)}" if most else ""
        return {"type": "MemoryError", "message": f"{hook} ran out of memory{limit}. Use less, or raise the limit."}


async def _copy(host: EnvHost, hook: str, rollout: str, given: Any, *names: Any) -> bytes | None:
    """Files for a workspace, or from it, by content: the other side's are not to be seen from a sandbox."""
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
    """What a hook returned, as it is understood on the other side."""
    if hook == "run_tool":
        return value if isinstance(value, str) else result_text(value)
    if hook == "compute_reward":
        return _plain_rewards(value)
    if hook == "compute_group_reward":
        if not isinstance(value, list | tuple):
            raise RewardError(
                f"compute_group_reward gave {type(value).__name__}. Return a list with one dict per rollout."
            )
        return [_plain_rewards(each) for each in value]
    if hook == "list_tools":
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
    """What the other side has to know of the environment."""
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

    def __init__(self, send: Any) -> None:
        super().__init__(logging.INFO)
        self._send_frame = send
        self._lines: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        rollouts = [each for each in current_rollouts() if self._may_speak(each)]
        if current_rollouts() and not rollouts:
            return
        try:
            text = record.getMessage()[: limits.LOG_LINE_CHARS]
            self._send_frame(pack({"log": [record.levelno, record.name, text, rollouts]}))
        except Exception:  # a line that cannot be formatted is the environment's own loss
            self.handleError(record)

    def _may_speak(self, rollout: str) -> bool:
        """No more lines than a record keeps, or a chatty hook would fill the socket."""
        count = self._lines[rollout] = self._lines.pop(rollout, 0) + 1
        if len(self._lines) > 10_000:
            del self._lines[next(iter(self._lines))]
        return count <= limits.LOG_LINES


if __name__ == "__main__":
    main()
