"""The client's end of `inside/fork_server.py`: starts it, sends it calls, and fails them when it is lost."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.cross_loop import settle
from benchmax.errors import SandboxError, UsageError
from benchmax.sandbox.call import Call
from benchmax.sandbox.inside import kernel

LAUNCHER = Path(__file__).with_name("inside") / "launcher.py"
_BUFFER_BYTES = 1 << 20
_END_SECONDS = 5.0
SANDBOXED = "BENCHMAX_SANDBOXED"
"""Set in every call, so that what it starts need not warn that it has no boundary of its own."""
VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "USER": "sandbox",
    "TMPDIR": "/tmp",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system", SANDBOXED: "1",
}  # fmt: skip
"""Variables of every call. Many calls share few cores, and threads that a library starts before a fork are lost."""


@dataclass(frozen=True, slots=True)
class View:
    """For processes that keep running in a folder of their own: which of the files that they see they may open.

    Each has a `workspace`, terminals, and nothing else to write.
    """

    allowed: tuple[str, ...]
    """What Landlock lets them read of the sandbox's `read`."""
    listed: tuple[str, ...] = ()
    """Folders in which they may only list names."""
    hidden: tuple[str, ...] = ()
    """Paths in `read` that are covered."""


@dataclass(frozen=True, slots=True)
class Forker:
    """An interpreter from which calls are forked, and the file that decides what it imports (see `inside/zygote`)."""

    python: str
    loader: str
    plan: Mapping[str, Any]
    env: Mapping[str, str]
    folder: str
    """Where it is started."""


@dataclass(frozen=True, slots=True)
class Forking:
    """Whether calls can be forked from a forker."""

    reason: str | None
    """Why calls cannot be forked from it; None when they can."""
    news: Mapping[str, Any]
    """Further facts from its loader."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    exit: int
    """Its exit code; of a process that was killed, the signal, negative."""
    by: str | None = None
    """The limit that ended it; `killed` when whoever started it did."""
    refused: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    workspace: int = -1
    """A descriptor of the folder it worked in, when nothing of it runs any more; -1 when there is none."""
    failure: str | None = None
    """Why it could not be started, or was lost with its sandbox."""

    @classmethod
    def of(cls, ended: asyncio.Future[Ended]) -> Ended:
        """How a process ended, from its `ended`, which is done; one that was lost with its sandbox was killed."""
        if ended.cancelled():
            return cls(-signal.SIGKILL)
        error = ended.exception()
        return ended.result() if error is None else cls(-signal.SIGKILL, failure=str(error))


@dataclass(eq=False, slots=True)
class Process:
    """A running call. `ended` becomes how it ended, or a SandboxError when the sandbox was lost."""

    number: int
    connection: Connection
    keeps: bool
    """Whether the caller wants its folder at its end, rather than the number of its process at its start."""
    pid: int = 0
    """Of its first process, as seen from here."""
    started: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ended: asyncio.Future[Ended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def kill(self, by: str = "killed") -> None:
        """End it and all that it started."""
        self._tell({"kill": self.number, "by": by})

    def signal(self, number: int) -> None:
        """Send a signal to its first process."""
        self._tell({"signal": self.number, "as": number})

    def _tell(self, message: Mapping[str, Any]) -> None:
        if not self.ended.done():
            with suppress(SandboxError):  # the server is gone, and the process with it
                self.connection.send(message)


class Connection:
    """The client's end of one fork server; `setup` says what it is started with (see `Sandbox`)."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._setup = setup
        self.dead = False
        self.guards: frozenset[str] = frozenset()
        self.lacks: dict[str, str] = {}
        self.user = -1
        """The number of the user that calls run as, as seen from here."""
        self._numbers = itertools.count(1)
        self._processes: dict[int, Process] = {}
        self._ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.forking: asyncio.Future[Forking] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start the server; SandboxError when it cannot be started."""
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        with theirs:
            self._popen = _start_launcher(theirs.fileno())
        try:
            await self._become_ready()
        except BaseException:  # also when cancelled
            await self.close()
            raise

    async def _become_ready(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock, self._receive)
        with os.fdopen(kernel.memory_file(json.dumps(self._setup).encode())) as setup:
            socket.send_fds(self._sock, [b"."], [setup.fileno()])
        try:
            reason = await asyncio.wait_for(asyncio.shield(self._ready), limits.SANDBOX_START_SECONDS)
        except TimeoutError:
            reason = f"it was not ready within {limits.SANDBOX_START_SECONDS:g} s"
        if reason is not None:
            raise SandboxError(
                f"The sandbox cannot be started: {reason}. Run `benchmax doctor` to see what is missing."
            )

    def spawn(self, call: Call, fds: Sequence[int], *, keep: bool) -> Process:
        """Start a call whose descriptors 0, 1, 2, … are `fds`, which stay open here."""
        process = Process(next(self._numbers), self, keep)
        process.ended.add_done_callback(_seen)
        payload = _payload(call)
        try:
            self.send(_order(process.number, call, reports_pid=not keep), [payload, *fds])
        finally:
            os.close(payload)
        self._processes[process.number] = process
        return process

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        if self.dead:
            raise SandboxError("The sandbox's server is gone. Try again.")
        packet = json.dumps(message).encode()
        if len(packet) > kernel.PACKET_BYTES:
            raise UsageError(f"A call's settings have {len(packet):,} bytes. Shorten them.")
        try:
            socket.send_fds(self._sock, [packet], list(fds))
        except OSError as error:
            self._lost()
            raise SandboxError(f"The sandbox's server cannot be reached: {error}. Try again.") from None

    def _receive(self) -> None:
        while not self.dead:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, kernel.PACKET_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._lost()
                return
            self._handle(json.loads(data), fds)

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        if "ready" in message:
            self.guards = frozenset(message.get("guards", ()))
            self.lacks = dict(message.get("lacks", {}))
            self.user = int(message.get("user", -1))
            settle(self._ready, message["ready"])
        elif "forker" in message:
            settle(self.forking, Forking(message["forker"], message["news"]))
        elif "started" in message:
            pid = _pid_of(fds)
            if (process := self._processes.get(message["started"])) is not None:
                process.pid = pid
                settle(process.started, None)
        elif (process := self._processes.pop(message["ended" if "ended" in message else "failed"], None)) is not None:
            settle(process.started, None)
            if not process.keeps:
                while fds:
                    os.close(fds.pop())
            if "failed" in message:
                process.ended.set_exception(
                    SandboxError(f"A call could not be started: {message['reason']}. See `benchmax doctor`.")
                )
            else:
                process.ended.set_result(_ended(message, fds))

    def _lost(self) -> None:
        """Fail every call: Linux has ended them with the server."""
        if self.dead:
            return
        self.dead = True
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()
        settle(self._ready, "its server ended")
        settle(self.forking, Forking("the sandbox ended", {}))
        for process in self._processes.values():
            settle(process.started, None)
            process.ended.set_exception(SandboxError("The sandbox's server ended, and the call with it. Try again."))
        self._processes.clear()

    async def close(self) -> None:
        """End the server, and with it every call; returns when they are gone."""
        self._lost()
        await asyncio.to_thread(self._wait)

    def _wait(self) -> None:
        try:
            self._popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


def _start_launcher(fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-B", str(LAUNCHER), str(fd)],
        pass_fds=[fd], start_new_session=True, cwd="/", env=VARIABLES,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _order(number: int, call: Call, reports_pid: bool) -> dict[str, Any]:
    """What the server has to know about a call; not what it runs."""
    given = call.limits
    workspace = str(call.workspace) if call.workspace is not None else None
    serves = given.network == "none" and given.port is not None
    folder = most(given.folder_bytes if workspace else None)
    return {
        "call": number,
        "fork": "loaded" if call.forked else "code" if call.code is not None else None,
        "reports_pid": reports_pid,
        "shape": {"network": "host" if serves else given.network, "disk": given.disk_bytes, "workspace": workspace},
        "network": "serve" if serves else given.network,
        "port": given.port,
        "limits": {
            "wall": most(given.wall_seconds), "cpu": most(given.cpu_seconds), "memory": most(given.memory_bytes),
            "processes": given.processes, "open_files": given.open_files,
            "file": folder if workspace else given.disk_bytes, "folder": folder,
        },
    }  # fmt: skip


def most(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _payload(call: Call) -> int:
    """What to run and its files, in memory that only the call's own process reads."""
    home = str(call.workspace) if call.workspace is not None else "/workspace"
    head = json.dumps(
        {
            "code": call.code,
            "argv": list(call.argv),
            "env": {**VARIABLES, "HOME": home, **call.env},
            "cwd": call.cwd,
            "files": [(name, len(content)) for name, content in call.files.items()],
        }
    ).encode()
    return kernel.memory_file(len(head).to_bytes(8, "little"), head, *call.files.values())


def _pid_of(fds: list[int]) -> int:
    """The pid, as seen from here, of the process that a descriptor refers to; 0 when it has ended."""
    if not fds:
        return 0
    with open(f"/proc/self/fdinfo/{fds[0]}", encoding="utf-8") as file:
        found = [line.split()[1] for line in file if line.startswith("Pid:")]
    while fds:
        os.close(fds.pop())
    return max(0, int(found[0])) if found else 0


def _ended(message: dict[str, Any], fds: list[int]) -> Ended:
    status = message["status"]
    return Ended(
        exit=-signal.SIGKILL if status is None else status,
        by=message["by"],
        refused=tuple(message["refused"]),
        cpu_seconds=message["cpu"],
        memory_bytes=message["memory"],
        workspace=fds[0] if fds else -1,
    )


def _seen(future: asyncio.Future[Any]) -> None:
    """Mark its exception as retrieved, as nobody may be waiting for it."""
    if not future.cancelled():
        future.exception()
