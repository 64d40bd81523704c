"""The agent's side of a nursery: server processes by request, their pipes here, their end told."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmax.envs.mcp.fork.preload import split_command
from benchmax.envs.mcp.fork.sandbox import mark_of
from benchmax.errors import McpError

SCRIPT = Path(__file__).with_name("fork_server.py")
ORPHAN_SECONDS = (0.1, 0.5, 2.0)
"""When to look for what a dead nursery left behind."""
MOST_GENERATIONS = 20
MOST_BYTES = 200_000
"""What a nursery takes in one packet."""
OPEN_FILES = 4096
FILE_BYTES = 2**31
"""The largest file a server may write."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What servers may read, and whether the kernel can hold them to it."""

    read: tuple[str, ...]
    confined: bool
    write: tuple[str, ...] = ()
    """What packages may write while they are imported, and servers in their own part of it."""
    listed: tuple[str, ...] = ()
    """Folders of which a part is closed: the names in them may be read, as imports need."""

    def plan(self) -> dict[str, Any]:
        return {
            "read": self.read, "write": self.write, "listed": self.listed, "confined": self.confined,
            "open_files": OPEN_FILES, "file_bytes": FILE_BYTES,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program to be forked, and what its packages are imported with."""

    kind: str
    target: str
    arguments: tuple[str, ...] = ()
    own: str = "/"
    """An empty directory of the parent's own: `own`/workspace is where it imports."""
    varying: tuple[str, ...] = ("HOME", "TMPDIR", "PWD")
    """Variables that are another in each rollout."""
    also: tuple[str, ...] = ()
    """Files whose imports are wanted too."""

    def plan(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "target": self.target, "arguments": self.arguments, "own": self.own,
            "varying": self.varying, "also": self.also,
        }  # fmt: skip


@dataclass(eq=False, slots=True)
class Child:
    """One server process. `ended` becomes its exit status."""

    number: int
    nursery: Nursery
    pid: int = 0
    over: bool = False
    """Whether it was ended for taking more memory than it may."""
    started: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ended: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def kill(self) -> None:
        """End it and all that it started."""
        if not self.ended.done():
            self.nursery.kill(self)


class Nursery:
    """A parent process for servers, see fork_server.py."""

    def __init__(
        self, interpreter: str, rules: Rules, variables: Mapping[str, str], python: Program | None = None
    ) -> None:
        self._interpreter = interpreter
        self._variables = dict(variables)
        self._folder = f"{python.own}/workspace" if python is not None else "/"
        self._plan = {**rules.plan(), "python": python.plan() if python is not None else None}
        self._numbers = itertools.count(1)
        self._children: dict[int, Child] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self.ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Why servers cannot be forked here; None when they can."""
        self.left: dict[str, str] = {}
        """Packages that servers import themselves, and why."""
        self.dead = False
        self.proven = False
        """Whether a server forked here has ever worked."""

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            self._process = subprocess.Popen(
                [self._interpreter, "-u", str(SCRIPT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=self._folder,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        _parents.add(self._process.pid)
        self._sock = ours
        with tempfile.TemporaryFile() as plan:  # what may be read may be more than a packet holds
            plan.write(json.dumps(self._plan).encode())
            plan.seek(0)
            socket.send_fds(ours, [b'{"plan": 0}'], [plan.fileno()])
        asyncio.get_running_loop().add_reader(ours, self._heard)

    async def spawn(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        own: Sequence[str],
        fds: Sequence[int],
        memory: int | None = None,
        read: Sequence[str] = (),
    ) -> Child:
        """Start a server whose descriptors 0, 1, 2, … are `fds`; they are closed here. `memory`: in bytes, at most."""
        child = Child(next(self._numbers), self)
        message = {
            "spawn": child.number, "argv": list(argv), "cwd": cwd, "env": dict(env), "own": list(own),
            "read": list(read), "memory": memory,
        }  # fmt: skip
        try:
            if self.dead or self._sock is None:
                raise McpError("The parent of the MCP servers is gone. Try again.")
            packet = json.dumps(message).encode()
            if len(packet) > MOST_BYTES:
                raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
            self._children[child.number] = child
            socket.send_fds(self._sock, [packet], list(fds))
        except OSError as error:
            self._children.pop(child.number, None)
            raise McpError(f"No MCP server can be started: {error}. Shorten its arguments and variables.") from None
        finally:
            for fd in fds:
                os.close(fd)
        try:
            await child.started
        except asyncio.CancelledError:
            self.kill(child)
            raise
        return child

    def kill(self, child: Child) -> None:
        if self._sock is not None and not self.dead:
            try:
                self._sock.send(json.dumps({"kill": child.number}).encode())
            except OSError:
                self._lost()

    def _heard(self) -> None:
        assert self._sock is not None
        while True:
            try:
                data = self._sock.recv(65_536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lost()
                return
            self._obey(json.loads(data))

    def _obey(self, message: dict[str, Any]) -> None:
        if "ready" in message and not self.ready.done():
            self.left = dict(message.get("left") or {})
            self.ready.set_result(message["ready"])
        elif "spawned" in message and (child := self._children.get(message["spawned"])) is not None:
            child.pid = message["pid"]
            _settle(child.started, None)
        elif "failed" in message and (child := self._children.pop(message["failed"], None)) is not None:
            if not child.started.done():
                child.started.set_exception(
                    McpError(f"No MCP server can be started: it {message['reason']}. Free memory.")
                )
        elif "ended" in message and (child := self._children.pop(message["ended"], None)) is not None:
            child.over = message["over"]
            _settle(child.started, None)
            _settle(child.ended, message["status"])

    def _lost(self) -> None:
        """The nursery died. Linux ended its children; what they started in their sessions is ended here."""
        if self.dead:
            return
        self.dead = True
        assert self._sock is not None
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()
        if not self.ready.done():
            self.ready.set_result("its packages end the interpreter when imported")
        for child in self._children.values():
            if child.pid:
                _kill_group(child.pid)
            if not child.started.done():
                child.started.set_exception(McpError("The parent of the MCP servers died. Try again."))
            _settle(child.ended, -9)
        self._children.clear()
        if self._process is not None:
            self._process.poll()
            _parents.discard(self._process.pid)
        for pause in ORPHAN_SECONDS:
            asyncio.get_running_loop().call_later(pause, _end_orphans)

    async def close(self) -> None:
        """End it, and with it every server."""
        if self._process is None:
            return
        if not self.dead:
            self._lost()
        try:
            await asyncio.to_thread(self._process.wait, 3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_parents: set[int] = set()
"""Nurseries of this agent."""


def _end_orphans() -> None:
    """What a nursery's servers had detached is the agent's child now, when the nursery died before it could end it."""
    for pid in _children():
        if pid not in _parents and mark_of(pid) is not None:
            _end(pid)


def end_children() -> None:
    """Kill all that this process started, and what that leaves to it; for an agent, which ends then itself."""
    for _ in range(MOST_GENERATIONS):
        if not (pids := _children()):
            return
        for pid in pids:
            _end(pid)


def _end(pid: int) -> None:
    """Kill a child of this process with its group, and reap it."""
    _kill_group(pid)
    try:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    except OSError:
        pass


def living_children() -> list[int]:
    """Those children of this process that have not ended."""
    return [pid for pid in _children() if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        try:
            found += map(int, Path(f"/proc/self/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except OSError:
        pass


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


# Which commands can be forked


def python_command(command: str, args: Sequence[str], path: str) -> tuple[str, Program] | None:
    """The interpreter of a command that is a Python program, and the program; None when it is none."""
    found = shutil.which(command, path=path)
    if found is None:
        return None
    name = os.path.basename(command)
    if name.startswith("python") and name[6:].replace(".", "").isdigit() | (name == "python"):
        parts = split_command(args)
        return None if parts is None else (found, Program(parts[0], parts[1], tuple(parts[2])))
    interpreter = _shebang(found)
    if interpreter is not None:
        return interpreter, Program("script", found, tuple(args))
    return None


def _shebang(path: str) -> str | None:
    """The interpreter of a script that a package installed, `mcp-server-time` and the like."""
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return None
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    if len(words) == 1 and os.path.basename(words[0]).startswith("python") and os.path.isfile(words[0]):
        return words[0]
    return None
