"""`Sandbox`: `await sandbox.run(Call(…))` for code that ends, `spawn` for processes that keep running."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from benchmax import limits
from benchmax.errors import SandboxUnavailable, UsageError
from benchmax.files.links import read_plain
from benchmax.files.temp_dirs import make_owned_dir, remove_orphaned_dirs, remove_tree
from benchmax.package_folders import package_folders
from benchmax.sandbox.call import Call, EndedBy, Limits, Network, Result
from benchmax.sandbox.capabilities import INSIST, Capabilities, insists, require
from benchmax.sandbox.connection import LAUNCHER, Connection, Ended, Forker, Forking, Process, View, most
from benchmax.sandbox.inside import kernel
from benchmax.sandbox.inside.guards import GUARDS

logger = logging.getLogger(__name__)

_READ_BYTES = 65_536
INSIDE = LAUNCHER.parent


class Sandbox:
    """A fork server, and calls to it. Starts with the first call, and again when it is lost; belongs to one loop.

    `modules` are imported once, for every call with `code`; `warm_up` is source that runs once after that, to do what
    the modules do at first use. `read` are paths that calls may read besides the system and the
    interpreter. `own` is a folder below which a call's `workspace` may lie: as root a folder of the sandbox's `user`,
    in one that others may pass (mode 711). `network` is the most that a call may ask for; `closed_ports` are TCP ports
    that then cannot be connected to, on any address. `scrap` is a folder that is removed when this process is gone,
    however it ended.

    As root `group` bounds memory and processes of all calls together by a cgroup, where the machine has one to make.

    `view` and `forker` are for MCP servers; see their classes. As root, calls have the user number `as_user`, or one of
    their own. For code that is trusted, `guards` names those that it gets, and `kept` capabilities that root's keeps.
    `name` is in the log.
    """

    def __init__(
        self,
        modules: Sequence[str] = (),
        *,
        warm_up: str = "",
        read: Iterable[str | Path] = (),
        own: Path | None = None,
        network: Network = "none",
        insist: bool | None = None,
        scrap: Path | None = None,
        closed_ports: Iterable[int] = (),
        view: View | None = None,
        forker: Forker | None = None,
        as_user: int | None = None,
        group: Limits | None = None,
        guards: Iterable[str] = GUARDS,
        kept: Iterable[int] = (),
        name: str = "",
        _without: Iterable[str] = (),
    ) -> None:
        without = {*_without, *(() if group is not None else ("cgroup",))}
        ours = [sys.prefix, sys.base_prefix, *package_folders()]
        ours += [str(INSIDE), os.path.dirname(forker.loader)] if forker is not None else []
        self._setup: dict[str, Any] = {
            "read": list(dict.fromkeys([*ours, *(str(Path(path).absolute()) for path in read)])),
            "modules": list(modules),
            "warm_up": warm_up,
            "network": network,
            "own": own and str(own.resolve()),
            "guards": [name for name in guards if name not in without],
            "scrap": scrap and str(scrap),
            "view": view and asdict(view),
            "forker": forker and asdict(forker),
            "ports": list(closed_ports) if network == "host" else [],
            "as_user": as_user,
            "group": group and {"memory": most(group.memory_bytes), "pids": group.processes},
            "kept": list(kept),
        }
        self._name = f" of {name}" if name else ""
        self._insist = insists() if insist is None else insist
        self._connection: Connection | None = None
        self._scratches: Path | None = None
        self._starting = asyncio.Lock()
        self._places = asyncio.Semaphore(limits.SANDBOX_CALLS)

    async def __aenter__(self) -> Sandbox:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def start(self) -> Capabilities:
        """Start the server, unless it runs; SandboxUnavailable where this machine cannot confine untrusted code."""
        return _capabilities(await self._connected())

    @property
    def user(self) -> int:
        """The number of the user that calls run as, once it is started; a `workspace` must be that user's."""
        return -1 if self._connection is None else self._connection.user

    async def forking(self) -> Forking:
        """Whether its forker can be forked from, once that is known; the sandbox is started, unless it runs."""
        return await asyncio.shield((await self._connected()).forking)

    @property
    def running(self) -> bool:
        return self._connection is not None and not self._connection.dead

    async def close(self) -> None:
        """End the server and every call."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        if self._scratches is not None:
            remove_tree(self._scratches)
            self._scratches = None

    async def _connected(self) -> Connection:
        async with self._starting:
            if self._connection is None or self._connection.dead:
                await self.close()
                connection = Connection(self._setup)
                await connection.start()
                try:
                    self._accept(connection)
                except UsageError:
                    await connection.close()
                    raise
                self._connection = connection
            return self._connection

    def _accept(self, connection: Connection) -> None:
        """Raise SandboxUnavailable for one with fewer guards than required, unless the user insists."""
        found = _capabilities(connection)
        require("boundary", found, insist=self._insist or found.within)
        if self._setup["ports"] and "landlock_tcp" not in connection.guards and not self._insist:
            why = connection.lacks.get("landlock_tcp", "it was not asked for")
            raise SandboxUnavailable(f"No port can be closed here: {why}. Use Linux 6.7, or set BENCHMAX_{INSIST}=1.")

    async def spawn(self, call: Call, fds: Sequence[int]) -> Process:
        """Start a call whose descriptors 0, 1, 2, … are `fds`; the caller closes its copies, and reads and waits.

        Limits on output, and files asked for, are the caller's, too.
        """
        connection = await self._connected()
        self._check(call, connection)
        began = time.monotonic()
        scratch = self._scratch(call, connection)
        process = connection.spawn(replace(call, workspace=scratch) if scratch else call, fds, keep=False)
        process.ended.add_done_callback(lambda ended: self._log_end(process.number, ended, time.monotonic() - began))
        if scratch is not None:
            process.ended.add_done_callback(lambda _: shutil.rmtree(scratch, ignore_errors=True))
        try:
            await asyncio.shield(process.started)
        except BaseException:
            _give_up(process)
            raise
        return process

    async def spawn_on_line(
        self, call: Call, line_at: Collection[int], descriptors: int, most_bytes: int
    ) -> tuple[Process, asyncio.StreamReader, asyncio.StreamWriter]:
        """Start a call with a socket to this process as the descriptors `line_at`; its others lead nowhere."""
        near, far = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            process = await self.spawn(call, [far.fileno() if at in line_at else null for at in range(descriptors)])
        except BaseException:
            near.close()
            raise
        finally:
            os.close(null)
            far.close()
        return process, *await asyncio.open_connection(sock=near, limit=most_bytes)

    async def run(self, call: Call) -> Result:
        """Run a call to its end."""
        async with self._places:
            connection = await self._connected()
            scratch = self._scratch(call, connection)
            try:
                return await self._run(replace(call, workspace=scratch) if scratch else call, connection)
            finally:
                if scratch is not None:
                    shutil.rmtree(scratch, ignore_errors=True)

    def _scratch(self, call: Call, connection: Connection) -> Path | None:
        """A workspace on the disk for a call that cannot have one in memory."""
        if call.workspace is not None or "mount" in connection.guards:
            return None
        if self._scratches is None:
            remove_orphaned_dirs()
            self._scratches = make_owned_dir("benchmax-calls-")
            self._scratches.chmod(0o711)
        folder = tempfile.mkdtemp(dir=self._scratches)
        if os.geteuid() == 0:
            os.chown(folder, connection.user, connection.user)
        return Path(folder)

    async def _run(self, call: Call, connection: Connection) -> Result:
        self._check(call, connection)
        began = time.monotonic()
        output = _Output(call.limits.output_bytes)
        stdin = _stdin_file(call.stdin)
        try:
            process = connection.spawn(call, [stdin, *output.writers], keep=True)
        except BaseException:
            output.close()
            raise
        finally:
            os.close(stdin)
            output.close_writers()
        output.listen(lambda: process.kill("output"))
        try:
            ended = await asyncio.shield(process.ended)  # others wait for it, too
            await output.finished()
        except BaseException:
            _give_up(process)
            raise
        finally:
            output.close()
        result = _result(call, ended, output, time.monotonic() - began)
        self._log(process.number, ended, result.seconds)
        return result

    def _log_end(self, number: int, future: asyncio.Future[Ended], seconds: float) -> None:
        if not future.cancelled() and future.exception() is None:
            self._log(number, future.result(), seconds)

    def _log(self, number: int, ended: Ended, seconds: float) -> None:
        """Log one line per call: a warning when a limit ended it, or when it failed and had been refused something.

        Libraries try one thing after another, and do without what is refused.
        """
        wrong = ended.by not in (None, "killed") or (ended.refused and ended.by is None and ended.exit != 0)
        logger.log(
            logging.WARNING if wrong else logging.INFO,
            "Sandbox call %d%s: %s%s after %.2f s.",
            number,
            self._name,
            _end_words(ended),
            f", was refused {', '.join(ended.refused)}" if ended.refused else "",
            seconds,
        )

    def _check(self, call: Call, connection: Connection) -> None:
        if (call.limits.network == "host" or call.limits.port) and self._setup["network"] == "none":
            raise UsageError("This sandbox has no network. Make it with Sandbox(network='host').")
        if call.workspace is not None and "mount" in connection.guards:
            own = self._setup["own"]
            if own is None or not call.workspace.resolve().is_relative_to(own):
                raise UsageError(
                    f"The workspace {call.workspace} is not below the sandbox's `own` folder. Create it there."
                )


def _capabilities(connection: Connection) -> Capabilities:
    return Capabilities(connection.guards, connection.lacks, _is_root())


def _is_root() -> bool:
    """Whether this is the machine's root. That of a user namespace is an ordinary user outside."""
    if os.geteuid() != 0:
        return False
    inside, outside, _ = Path("/proc/self/uid_map").read_text().split("\n")[0].split()
    return inside == outside


def _stdin_file(content: bytes) -> int:
    if not content:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    writable = kernel.memory_file(content, flags=os.MFD_ALLOW_SEALING)
    try:
        with suppress(OSError):  # on a disk, which is bounded
            # Memory that no process is charged for must not grow.
            fcntl.fcntl(writable, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)


def _give_up(process: Process) -> None:
    """End a call that nobody waits for."""
    process.kill()
    process.ended.add_done_callback(_close_workspace)


def _close_workspace(ended: asyncio.Future[Ended]) -> None:
    if (folder := Ended.of(ended).workspace) >= 0:
        os.close(folder)


def _result(call: Call, ended: Ended, output: _Output, seconds: float) -> Result:
    try:
        root: int | Path | None = ended.workspace if ended.workspace >= 0 else call.workspace
        files = _outputs(root, call) if root is not None else {}
    finally:
        if ended.workspace >= 0:
            os.close(ended.workspace)
    return Result(
        exit=ended.exit,
        stdout=output.text(0),
        stderr=output.text(1),
        files=files,
        ended_by=cast("EndedBy | None", ended.by),
        seconds=seconds,
        cpu_seconds=ended.cpu_seconds,
        memory_bytes=ended.memory_bytes,
        refused=ended.refused,
    )


def _outputs(root: int | Path, call: Call) -> dict[str, bytes]:
    """Files asked for, opened without following links; nothing of the call runs any more."""
    found = {}
    for name in call.outputs:
        try:
            found[name] = read_plain(root, name, call.limits.disk_bytes)
        except OSError:
            continue
    return found


def _end_words(ended: Ended) -> str:
    if ended.by is None:
        return f"exit {ended.exit}"
    return "given up" if ended.by == "killed" else f"ended by its {ended.by} limit"


class _Output:
    """What a call prints on two pipes, up to a limit on both together."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._most = most
        self._over = False
        self._parts: tuple[list[bytes], list[bytes]] = ([], [])
        pipes = (os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC))
        self._readers: list[int] = [reader for reader, _ in pipes]
        self.writers = [writer for _, writer in pipes]
        self._open = len(pipes)
        self._all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def listen(self, at_limit: Any) -> None:
        for index, reader in enumerate(self._readers):
            os.set_blocking(reader, False)
            asyncio.get_running_loop().add_reader(reader, self._read, index, reader, at_limit)

    def _read(self, index: int, reader: int, at_limit: Any) -> None:
        try:
            data = os.read(reader, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(reader)
            self._open -= 1
            if not self._open and not self._all.done():
                self._all.set_result(None)
            return
        self._parts[index].append(data[: self._left])
        self._left -= len(self._parts[index][-1])
        if not self._left and not self._over:
            self._over = True
            at_limit()

    async def finished(self) -> None:
        """Wait until everything that was written is read; no process is left to write more."""
        await self._all

    def text(self, index: int) -> str:
        text = b"".join(self._parts[index]).decode("utf-8", "replace")
        return f"{text}\n[cut: the limit is {self._most:,} bytes]" if self._over else text

    def close_writers(self) -> None:
        while self.writers:
            os.close(self.writers.pop())

    def close(self) -> None:
        self.close_writers()
        while self._readers:
            reader = self._readers.pop()
            asyncio.get_running_loop().remove_reader(reader)
            os.close(reader)
