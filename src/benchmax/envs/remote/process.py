"""One child process that runs the environment: its start, its messages, and the reason of its end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmax.cross_loop import settle
from benchmax.envs.logging import group_context
from benchmax.envs.remote.child import Child, Launch, PlainChild, start_sandboxed
from benchmax.envs.remote.output_lines import OutputLines
from benchmax.envs.remote.process_limits import Confinement, ProcessLimits, scrubbed_environment
from benchmax.envs.remote.wire import FrameProtocol, answer_of, rebuild
from benchmax.errors import EnvDefinitionError, EnvLost, SandboxError, SandboxUnavailable
from benchmax.files.display import readable_bytes
from benchmax.files.temp_dirs import remove_tree
from benchmax.sandbox import Ended, Sandbox

logger = logging.getLogger(__name__)

CLOSED = "closed its connection"
END_SECONDS = 0.2
"""A child whose connection closes has this long to end with a code of its own."""
_OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "Cannot allocate memory", "memory allocation of", "out of memory")

Output = Callable[[str, str], None]
"""Receives each line a child prints: "stdout" or "stderr", and the line."""
Answer = Callable[[Any, Exception | None], None]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How the children of one environment are started."""

    source: dict[str, Any]
    """`{"bundle": folder}` or `{"spec": name, "args": {…}}`."""
    python: str
    workdir: Path
    variables: Mapping[str, str]
    limits: ProcessLimits
    start_seconds: float
    cancel_seconds: float
    output: Output
    read: tuple[str, ...] = ()
    """Paths the environment's code lies in."""
    confinement: Confinement | None = None
    """The sandbox of the children; None for none."""


@dataclass(slots=True)
class Request:
    """One hook call that was sent, or waits to be."""

    id: int
    hook: str
    rollouts: tuple[str, ...]
    key: str | None
    frame: bytes
    answer: Answer
    process: EnvProcess | None = None
    sent: int = 0
    """To how many processes."""


@dataclass(eq=False)
class EnvProcess(FrameProtocol):
    """A child and its socket. Everything here runs on the pool's loop."""

    spec: ProcessSpec
    sandbox: Sandbox | None = None
    send_again: Callable[[Request], bool] = lambda request: False
    """Called for each call that this process leaves unanswered; returns True when another process answers it."""
    pending: dict[int, Request] = field(default_factory=dict)
    end_reason: str | None = None
    """How it ended, once it has."""

    def __post_init__(self) -> None:
        super().__init__()
        self._loop = loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._cancel_timers: dict[int, asyncio.TimerHandle] = {}
        self._kill_reason = ""
        self._child: Child | None = None
        self._printed: dict[str, OutputLines] = {}
        self._folder = ""

    async def start(self) -> dict[str, Any]:
        """Start the child and return its description of the environment; raises EnvDefinitionError when it cannot."""
        ours, theirs = socket.socketpair()
        pipes = {name: os.pipe() for name in ("stdout", "stderr")}
        readers = [reader for reader, _ in pipes.values()]
        try:
            self._folder = tempfile.mkdtemp(prefix="process-", dir=self.spec.workdir)
            self._child = await self._launch(theirs.fileno(), *(writer for _, writer in pipes.values()))
        except (OSError, SandboxError, SandboxUnavailable) as error:
            ours.close()
            for reader in readers:
                os.close(reader)
            raise self._not_started(error) from None
        finally:
            theirs.close()
            for _, writer in pipes.values():
                os.close(writer)
        self._child.ended.add_done_callback(self._child_ended)
        for name, reader in zip(pipes, readers, strict=True):
            make = partial(OutputLines, partial(self._pass_on, name))
            _, self._printed[name] = await self._loop.connect_read_pipe(make, os.fdopen(reader, "rb", 0))
        await self._loop.create_unix_connection(lambda: self, sock=ours)
        self.send(self._instructions())
        try:
            return await asyncio.wait_for(asyncio.shield(self.hello), self.spec.start_seconds)
        except TimeoutError:
            self.kill(f"did not start within {self.spec.start_seconds:g} s")
            raise EnvDefinitionError(f"The environment {self._kill_reason}. Make __init__ faster.") from None

    async def _launch(self, wire: int, stdout: int, stderr: int) -> Child:
        variables = {**scrubbed_environment(self.spec.variables), "TMPDIR": self._folder}
        launch = Launch(self.spec.python, self._folder, variables, wire, stdout, stderr)
        if self.sandbox is None or self.spec.confinement is None:
            return PlainChild(launch)
        return await start_sandboxed(self.sandbox, launch, self.spec.limits, self.spec.confinement)

    def _not_started(self, error: Exception) -> EnvDefinitionError:
        shutil.rmtree(self._folder, ignore_errors=True)
        self.ended.set_result(None)
        if isinstance(error, SandboxUnavailable):  # another try would end the same way
            return EnvDefinitionError(str(error))
        self.end_reason = str(error)
        return EnvDefinitionError(f"{self.spec.python} cannot be started: {error}. Give another python.")

    def _instructions(self) -> dict[str, Any]:
        given = self.spec.limits
        return {
            **self.spec.source,
            "memory_bytes": given.memory_bytes,
            "open_files": given.open_files,
            "nice": given.nice,
            "start_seconds": self.spec.start_seconds,
        }

    def _pass_on(self, stream: str, line: str) -> None:
        try:
            self.spec.output(stream, line)
        except Exception:
            logger.exception("The output callback failed.")

    # Calls

    def call(self, request: Request) -> None:
        request.process, request.sent = self, request.sent + 1
        self.pending[request.id] = request
        self.send_frame(request.frame)

    def cancel(self, request: Request) -> None:
        """Abandon a call. A child that does not acknowledge it is stuck, and is killed."""
        if self.pending.pop(request.id, None) is None or self.end_reason is not None:
            return
        self.send({"cancel": request.id})
        reason = f"did not answer for {self.spec.cancel_seconds:g} s after {request.hook} was abandoned"
        self._cancel_timers[request.id] = self._loop.call_later(self.spec.cancel_seconds, self.kill, reason)

    # Messages of the child

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # nothing it sends may harm this side
            self.kill(f"sent an invalid message ({type(error).__name__}: {error})")

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.call_later(END_SECONDS, self.kill, CLOSED)

    def received(self, message: dict[str, Any]) -> None:
        if "log" in message:
            _relog(*message["log"])
        elif "cancelled" in message:
            if (timer := self._cancel_timers.pop(message["cancelled"], None)) is not None:
                timer.cancel()
        elif "hello" in message and not self.hello.done():
            self.hello.set_result(dict(message["hello"]))
        elif "failed" in message and not self.hello.done():
            self.hello.set_exception(_start_failure(message["failed"]))
        elif (request := self.pending.pop(message.get("id", -1), None)) is not None:
            request.answer(*answer_of(message))

    # The end

    def stop(self) -> None:
        """Ask the child to shut its environment down and exit."""
        self.send({"stop": True})

    def kill(self, reason: str) -> None:
        """End the child and whatever it started."""
        if self.end_reason is None and not self._kill_reason:
            self._kill_reason = reason
            if self._child is not None:
                self._child.kill()

    async def kill_and_wait(self, reason: str) -> None:
        """Kill the child, if there is one, and wait for its end."""
        if self._child is not None:
            self.kill(reason)
            await asyncio.wait([self.ended], timeout=5.0)

    def _child_ended(self, ended: asyncio.Future[Ended]) -> None:
        self._finishing = self._loop.create_task(self._finish(Ended.of(ended)))

    async def _finish(self, ended: Ended) -> None:
        if self._printed:
            await asyncio.wait([lines.closed for lines in self._printed.values()], timeout=0.5)
        self.end_reason = self._describe_end(ended)
        for timer in self._cancel_timers.values():
            timer.cancel()
        if not self.hello.done():
            self.hello.set_exception(EnvDefinitionError(self.end_reason))
            self.hello.exception()  # marked as retrieved: nobody may be waiting
        for request in list(self.pending.values()):
            if not self.send_again(request):
                request.answer(None, EnvLost(self.end_reason))
        self.pending.clear()
        self.close()
        for lines in self._printed.values():
            lines.close()
        await asyncio.to_thread(remove_tree, Path(self._folder))
        settle(self.ended, None)

    def _describe_end(self, ended: Ended) -> str:
        code = ended.exit
        own = self._kill_reason and self._kill_reason != CLOSED
        if own:
            how = f"{self._kill_reason} and was killed"
        elif ended.by is not None and ended.by != "killed":
            how = f"was ended by the {ended.by} limit of its sandbox"
        else:
            how = how_it_exited(code)
        tail = "\n".join(self._printed["stderr"].lines) if "stderr" in self._printed else ""
        most = self.spec.limits.memory_bytes
        if most is not None and any(sign in tail for sign in _OUT_OF_MEMORY):
            how += f" at its memory limit {readable_bytes(most)}"
        elif code == -signal.SIGKILL and not own and ended.by is None:
            how += " (the system may have run out of memory)"
        output = f" Its last lines were:\n{tail}" if tail else " It printed no error."
        return f"The environment's process {how}.{output}"


def how_it_exited(code: int) -> str:
    """An exit code in words; of a process that was killed, the signal, negative."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"was killed by signal {-code}"


def _start_failure(described: Any) -> EnvDefinitionError:
    error = rebuild(described)
    if isinstance(error, EnvDefinitionError) and type(error) is EnvDefinitionError:
        return error
    text = f"The environment cannot be opened: {type(error).__name__}: {error}"
    failure = EnvDefinitionError(text if text.rstrip().endswith((".", "!")) else f"{text}. Correct it first.")
    for note in getattr(error, "__notes__", ()):
        failure.add_note(note)
    return failure


def _relog(level: int, name: str, message: str, rollouts: list[str]) -> None:
    record = logging.LogRecord(str(name), int(level), "", 0, "%s", (str(message),), None)
    # No new logger is created: its name comes from the child.
    known = record.name if record.name in logging.root.manager.loggerDict else "benchmax.env"
    with group_context([str(each) for each in rollouts]):
        logging.getLogger(known).handle(record)
