"""How an environment's process is started and ended: under a guard, or in a sandbox before its first line runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmax import limits
from benchmax.envs.remote.process_limits import Confinement, ProcessLimits
from benchmax.sandbox import Call, Ended, Limits, Process, Sandbox

WORKER = "benchmax.bundle.environment_process"
"""The module a child runs; known here only by name, because it is on a layer above this one."""
_WIRE_FD = 3
"""The socket's descriptor in a sandbox."""
_NOT_IN_SANDBOX = ("HOME", "USER", "LOGNAME")
"""Variables that name what a sandbox does not have."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a child is started with. Its descriptors stay open here."""

    python: str
    folder: str
    variables: Mapping[str, str]
    wire: int
    """A descriptor whose number is the program's first argument."""
    stdout: int
    stderr: int
    stdin: int | None = None
    module: str = WORKER


class Child(Protocol):
    """A `PlainChild`, or a process of a sandbox."""

    ended: asyncio.Future[Ended]
    """Done when nothing is left of it and of what it started; see `Ended.of`."""

    def kill(self) -> None: ...

    def signal(self, number: int) -> None: ...


class PlainChild:
    """A process that goes under a guard (see `reaper`), which ends it and all it started."""

    def __init__(self, launch: Launch) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        # From the loop's thread, which outlives the child: Linux ends a child with the thread that started it.
        self._popen = subprocess.Popen(
            [launch.python, "-P", "-m", launch.module, str(launch.wire)],
            pass_fds=[launch.wire],
            start_new_session=True,
            cwd=launch.folder,
            env=dict(launch.variables),
            stdin=subprocess.DEVNULL if launch.stdin is None else launch.stdin,
            stdout=launch.stdout,
            stderr=launch.stderr,
        )
        threading.Thread(target=self._wait, name="benchmax-env-wait", daemon=True).start()

    def kill(self) -> None:
        """Its guard kills it and all it started."""
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        if self._popen.returncode is not None:  # reaped: its number may belong to another process by now
            return
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._popen.pid, number)

    def _wait(self) -> None:
        """In a thread: wait until the child and all it started have ended."""
        code = self._popen.wait()
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self.ended.set_result, Ended(code))


async def start_sandboxed(sandbox: Sandbox, launch: Launch, given: ProcessLimits, confinement: Confinement) -> Process:
    """Start a child in a sandbox; SandboxError or SandboxUnavailable when that is not possible."""
    await sandbox.start()
    if os.geteuid() == 0:
        os.chown(launch.folder, sandbox.user, sandbox.user)
    variables = {name: value for name, value in launch.variables.items() if name not in _NOT_IN_SANDBOX}
    call = Call(
        argv=[launch.python, "-P", "-m", launch.module, str(_WIRE_FD), "confined"],
        env=variables,
        workspace=Path(launch.folder),
        limits=_limits(given, confinement),
    )
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        stdin = null if launch.stdin is None else launch.stdin
        return await sandbox.spawn(call, [stdin, launch.stdout, launch.stderr, launch.wire])
    finally:
        os.close(null)


def _limits(given: ProcessLimits, confinement: Confinement) -> Limits:
    return Limits(
        wall_seconds=None,
        cpu_seconds=None,
        memory_bytes=given.memory_bytes,
        processes=limits.SANDBOX_ENV_PROCESSES,
        open_files=given.open_files,
        network=confinement.network,
    )
