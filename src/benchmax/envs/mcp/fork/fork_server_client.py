"""The agent's side of a fork server: starts it, starts server processes through it, and reports their end."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmax.envs.mcp.fork.preload import split_command
from benchmax.envs.mcp.fork.sandbox import mark_of
from benchmax.errors import McpError, UsageError

SCRIPT = Path(__file__).with_name("fork_server.py")
ORPHAN_SECONDS = (0.1, 0.5, 2.0)
"""When to look for processes that a dead fork server left."""
MOST_GENERATIONS = 20
MOST_BYTES = 200_000
"""The largest packet that a fork server takes."""
OPEN_FILES = 4096
FILE_BYTES = 2**31
"""The largest file a server may write."""


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """What servers may read, and whether the kernel can enforce it."""

    read: tuple[str, ...]
    confined: bool
    write: tuple[str, ...] = ()
    """Where packages may write while they are imported; each server writes in its own part."""
    listed: tuple[str, ...] = ()
    """Folders that are closed in part: their names may be listed, as imports need."""

    def plan(self) -> dict[str, Any]:
        return {**asdict(self), "open_files": OPEN_FILES, "file_bytes": FILE_BYTES}


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python program to fork, and how its packages are imported."""

    kind: str
    target: str
    arguments: tuple[str, ...] = ()
    own: str = "/"
    """An empty directory of the fork server; its working directory is `own`/workspace."""
    varying: tuple[str, ...] = ("HOME", "TMPDIR", "PWD")
    """Variables that differ between rollouts."""
    also: tuple[str, ...] = ()
    """Files whose imports are preloaded too."""
    interpreter: str = sys.executable


@dataclass(eq=False, slots=True)
class Child:
    """One server process. `ended` is its exit status."""

    number: int
    parent: ForkServerClient
    pid: int = 0
    over_memory: bool = False
    """Whether it was killed for using more memory than allowed."""
    started: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ended: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def kill(self) -> None:
        """Kill it and all that it started."""
        if not self.ended.done():
            self.parent.kill(self)


class ForkServerClient:
    """A process that starts servers, see fork_server.py."""

    def __init__(self, rules: SandboxRules, variables: Mapping[str, str], python: PythonProgram | None = None) -> None:
        self._interpreter = python.interpreter if python is not None else sys.executable
        self._variables = dict(variables)
        self._folder = f"{python.own}/workspace" if python is not None else "/"
        self._plan = {**rules.plan(), "python": asdict(python) if python is not None else None}
        self._numbers = itertools.count(1)
        self._children: dict[int, Child] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self.ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Why servers cannot be forked from it; None when they can."""
        self.not_preloaded: dict[str, str] = {}
        """Packages that servers import themselves, and why."""
        self.dead = False
        self.proven = False
        """Whether a server forked from it has ever started."""

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
        with tempfile.TemporaryFile() as plan:  # it may be larger than a packet
            plan.write(json.dumps(self._plan).encode())
            plan.seek(0)
            socket.send_fds(ours, [b'{"plan": 0}'], [plan.fileno()])
        asyncio.get_running_loop().add_reader(ours, self._readable)

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
        """Start a server with the descriptors `fds` as 0, 1, 2, …; closes them here. `memory`: its limit in bytes."""
        child = Child(next(self._numbers), self)
        message = {
            "spawn": child.number, "argv": list(argv), "cwd": cwd, "env": dict(env), "own": list(own),
            "read": list(read), "memory": memory,
        }  # fmt: skip
        try:
            if self.dead or self._sock is None:
                raise McpError("The process that starts MCP servers is gone. Try again.")
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

    def _readable(self) -> None:
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
            self._received(json.loads(data))

    def _received(self, message: dict[str, Any]) -> None:
        if "ready" in message and not self.ready.done():
            self.not_preloaded = dict(message.get("not_preloaded") or {})
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
            child.over_memory = message["over_memory"]
            _settle(child.started, None)
            _settle(child.ended, message["status"])

    def _lost(self) -> None:
        """The fork server died, and Linux killed its children; kill what those started in their sessions."""
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
                child.started.set_exception(McpError("The process that starts MCP servers died. Try again."))
            _settle(child.ended, -9)
        self._children.clear()
        if self._process is not None:
            self._process.poll()
            _parents.discard(self._process.pid)
        for pause in ORPHAN_SECONDS:
            asyncio.get_running_loop().call_later(pause, _end_orphans)

    async def close(self) -> None:
        """End it and all its servers."""
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
"""Pids of this agent's fork servers."""


def _end_orphans() -> None:
    """Kill what servers had detached and a dead fork server left: it is the agent's child now."""
    for child in psutil.Process().children():
        if child.pid not in _parents and mark_of(child.pid) is not None:
            _end(child.pid)


def end_children() -> None:
    """Kill all that this process started, and the orphans that this makes its children; for an agent that ends."""
    for _ in range(MOST_GENERATIONS):
        if not (children := psutil.Process().children()):
            return
        for child in children:
            _end(child.pid)


def _end(pid: int) -> None:
    """Kill a child of this process with its group, and reap it."""
    _kill_group(pid)
    try:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    except OSError:
        pass


def living_children() -> list[int]:
    """The children of this process that have not ended."""
    return [child.pid for child in psutil.Process().children() if _is_alive(child)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except OSError:
        pass


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def require_linux() -> None:
    """UsageError on a system without the calls that a fork server makes."""
    if not hasattr(socket, "SOCK_SEQPACKET") or not hasattr(os, "pipe2") or not hasattr(os, "memfd_create"):
        raise UsageError(
            f"MCP servers run on Linux, not on {sys.platform}. Start an agent on a Linux machine, and use it here with "
            "ManualProvisioner."
        )


# Which commands can be forked


def python_program(command: str, args: Sequence[str], path: str) -> PythonProgram | None:
    """The program of a command that runs Python; None when it does not."""
    found = shutil.which(command, path=path)
    if found is None:
        return None
    name = os.path.basename(command)
    if name.startswith("python") and name[6:].replace(".", "").isdigit() | (name == "python"):
        parts = split_command(args)
        return None if parts is None else PythonProgram(parts[0], parts[1], tuple(parts[2]), interpreter=found)
    words = shebang(found)  # of an installed script, such as `mcp-server-time`
    if len(words) == 1 and os.path.basename(words[0]).startswith("python") and os.path.isfile(words[0]):
        return PythonProgram("script", found, tuple(args), interpreter=words[0])
    return None


def shebang(path: str) -> list[str]:
    """The interpreter and its arguments in the first line of a script; empty when it has none."""
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
