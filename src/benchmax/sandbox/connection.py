"""The client's end of `inside/fork_server.py`: started, spoken to, and its loss told to all who wait."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.errors import SandboxError, UsageError
from benchmax.sandbox.call import Call
from benchmax.sandbox.inside import kernel

LAUNCHER = Path(__file__).with_name("inside") / "launcher.py"
PACKET_BYTES = 200_000
_BUFFER_BYTES = 1 << 20
_END_SECONDS = 5.0
VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "USER": "sandbox",
    "TMPDIR": "/tmp",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system", "BENCHMAX_SANDBOXED": "1",
}  # fmt: skip
"""What every call has. Many calls share few cores, and threads of a library that are started before a fork are lost."""


@dataclass(frozen=True, slots=True)
class View:
    """For processes that stay and have a folder of their own: what of the files that they see is open to them.

    Each has a `workspace`, terminals, and nothing else to write.
    """

    allowed: tuple[str, ...]
    """What Landlock lets them read, of what the sandbox's `read` shows."""
    listed: tuple[str, ...] = ()
    """Folders in which they may only list names."""
    hidden: tuple[str, ...] = ()
    """Paths in what is shown that are covered."""


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
    """What became of a forker."""

    reason: str | None
    """Why calls cannot be forked from it; None when they can."""
    news: Mapping[str, Any]
    """What its loader says besides."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a fork server is started with."""

    read: tuple[str, ...]
    modules: tuple[str, ...]
    warm_up: str
    network: str
    own: str | None
    guards: tuple[str, ...]
    scrap: str | None
    view: View | None
    forker: Forker | None
    ports: tuple[int, ...]
    """That cannot be connected to."""
    as_user: int | None
    group: Mapping[str, float] | None
    """The most that all calls take together."""
    kept: tuple[int, ...]
    """Capabilities."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What the server says of a process at its end."""

    exit: int
    by: str | None
    refused: tuple[str, ...]
    cpu_seconds: float
    memory_bytes: int
    workspace: int
    """A descriptor of the folder it worked in, when nothing of it runs any more; -1 when there is none."""


@dataclass(eq=False, slots=True)
class Process:
    """One call on its way. `ended` becomes its end, or a SandboxError."""

    number: int
    connection: Connection
    keeps: bool
    """Whether the folder it worked in is wanted at its end, and not the number of its process."""
    pid: int = 0
    """Of its first process, as seen from here."""
    started: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ended: asyncio.Future[Ended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def kill(self, by: str = "killed") -> None:
        """End it and all that it started."""
        if not self.ended.done():
            self.connection.send({"kill": self.number, "by": by})

    def signal(self, number: int) -> None:
        """Send a signal to its first process."""
        if not self.ended.done():
            self.connection.send({"signal": self.number, "as": number})


class Connection:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
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
        """SandboxError when there is no server to be had."""
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        with theirs:
            self._popen = self._launch(theirs.fileno())
        asyncio.get_running_loop().add_reader(self._sock, self._heard)
        with os.fdopen(_memory_file(json.dumps(asdict(self.setup)).encode())) as setup:
            socket.send_fds(self._sock, [b"."], [setup.fileno()])
        try:
            reason = await asyncio.wait_for(asyncio.shield(self._ready), limits.SANDBOX_START_SECONDS)
        except TimeoutError:
            reason = f"it was not ready within {limits.SANDBOX_START_SECONDS:g} s"
        if reason is not None:
            await self.close()
            raise SandboxError(f"The sandbox cannot be started: {reason}. Ask `benchmax doctor` what is missing.")

    def _launch(self, fd: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-B", str(LAUNCHER), str(fd)],
            pass_fds=[fd],
            start_new_session=True,
            cwd="/",
            env=VARIABLES,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def spawn(self, call: Call, fds: Sequence[int], *, keep: bool) -> Process:
        """Start a call whose descriptors 0, 1, 2, … are `fds`, which stay open here."""
        process = Process(next(self._numbers), self, keep)
        self._processes[process.number] = process
        process.ended.add_done_callback(_seen)
        payload = _payload(call)
        try:
            self.send(_order(process.number, call, tells=not keep), [payload, *fds])
        finally:
            os.close(payload)
        return process

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        if self.dead:
            raise SandboxError("The sandbox's server is gone. Try again.")
        packet = json.dumps(message).encode()
        if len(packet) > PACKET_BYTES:
            raise UsageError(f"A call's settings have {len(packet):,} bytes. Shorten them.")
        try:
            socket.send_fds(self._sock, [packet], list(fds))
        except OSError as error:
            self._lost()
            raise SandboxError(f"The sandbox's server cannot be reached: {error}. Try again.") from None

    def _heard(self) -> None:
        while not self.dead:
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, PACKET_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._lost()
                return
            self._obey(json.loads(data), fds)

    def _obey(self, message: dict[str, Any], fds: list[int]) -> None:
        if "ready" in message:
            self.guards = frozenset(message.get("guards", ()))
            self.lacks = dict(message.get("lacks", {}))
            self.user = int(message.get("user", -1))
            _settle(self._ready, message["ready"])
        elif "forker" in message:
            _settle(self.forking, Forking(message["forker"], message["news"]))
        elif "started" in message:
            pid = _pid_of(fds)
            if (process := self._processes.get(message["started"])) is not None:
                process.pid = pid
                _settle(process.started, None)
        elif (process := self._processes.pop(message["ended" if "ended" in message else "failed"], None)) is not None:
            _settle(process.started, None)
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
        """Linux ended every call with the server."""
        if self.dead:
            return
        self.dead = True
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()
        _settle(self._ready, "its server ended")
        _settle(self.forking, Forking("the sandbox ended", {}))
        for process in self._processes.values():
            _settle(process.started, None)
            process.ended.set_exception(SandboxError("The sandbox's server ended, and the call with it. Try again."))
        self._processes.clear()

    async def close(self) -> None:
        """End the server, and with it every call; returns when they are gone."""
        self._lost()
        await asyncio.to_thread(self._wait)

    def abandon(self) -> None:
        """The same without a loop; nobody waits for calls any more."""
        self.dead = True
        self._sock.close()
        self._wait()

    def _wait(self) -> None:
        try:
            self._popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


def _order(number: int, call: Call, tells: bool) -> dict[str, Any]:
    """What the server needs to know of a call; not what it runs."""
    given = call.limits
    workspace = str(call.workspace) if call.workspace is not None else None
    serves = given.network == "none" and given.port is not None
    folder = most(given.folder_bytes if workspace else None)
    return {
        "call": number,
        "fork": "loaded" if call.forked else "code" if call.code is not None else None,
        "tells": tells,
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
    return _memory_file(len(head).to_bytes(8, "little"), head, *call.files.values())


def _memory_file(*parts: bytes) -> int:
    fd = kernel.memory_file()
    with open(fd, "wb", closefd=False) as file:
        for part in parts:
            file.write(part)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _pid_of(fds: list[int]) -> int:
    """The number here of the process that a descriptor stands for; 0 when it has ended."""
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
        exit=-9 if status is None else status,
        by=message["by"],
        refused=tuple(message["refused"]),
        cpu_seconds=message["cpu"],
        memory_bytes=message["memory"],
        workspace=fds[0] if fds else -1,
    )


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _seen(future: asyncio.Future[Any]) -> None:
    """There may be nobody waiting for it any more."""
    if not future.cancelled():
        future.exception()
