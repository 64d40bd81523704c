"""The sandbox of one server's processes, or of the rewards: started, spoken to, and its processes' ends told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmax import limits
from benchmax.envs.mcp.fork.loader import LOADER
from benchmax.envs.mcp.fork.python_program import PythonProgram
from benchmax.errors import McpError, SandboxError, UsageError
from benchmax.sandbox import Call, Capabilities, Ended, Forker, Forking, Limits, Network, Process, Sandbox, View
from benchmax.sandbox.inside.guards import FIRST_UID, GUARDS

OPEN_FILES = 4096
TRUSTED = ("no_new_privs", "landlock_files", "landlock_scope", "capabilities", "descriptors")
"""The guards of rewards, which are the user's own code."""
KEPT = (0, 1, 3, 4, 10)
"""Capabilities that root's rewards keep: ownership and access of files as listed, and low ports."""


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """What servers may read, and not reach."""

    read: tuple[str, ...]
    """What is open to them: paths of which nothing is closed."""
    confined: bool
    """Whether the kernel can tell paths apart."""
    listed: tuple[str, ...] = ()
    """Folders that are closed in part: their names may be listed, as imports need."""
    shown: tuple[str, ...] = ()
    """What they see at all: few paths, with `read` in them."""
    hidden: tuple[str, ...] = ()
    """What of that is covered."""
    closed_ports: tuple[int, ...] = ()
    """TCP ports that they cannot connect to. Each costs a server some time and memory of the kernel."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one server may take with all that it starts."""

    memory: int | None = limits.MCP_MEMORY_BYTES
    network: Network = "host"
    port: int | None = None
    """That it is called on."""

    def of_sandbox(self) -> Limits:
        return Limits(
            wall_seconds=None,
            cpu_seconds=None,
            memory_bytes=self.memory,
            processes=limits.MCP_PROCESSES,
            open_files=OPEN_FILES,
            folder_bytes=limits.MCP_DISK_BYTES,
            network=self.network,
            port=self.port,
        )


UNLIMITED = ServerLimits(memory=None)


class Child:
    """One process. `ended` is its exit status."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.by: str | None = None
        """The limit that ended it."""
        self.failure: str | None = None
        """Why it could not be started, after all."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        process.ended.add_done_callback(self._settle)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Kill it and all that it started."""
        try:
            self._process.kill()
        except SandboxError:  # its sandbox is gone, and it with it
            pass

    def _settle(self, future: asyncio.Future[Ended]) -> None:
        if future.cancelled() or (error := future.exception()) is not None:
            self.failure = None if future.cancelled() else str(error)
            self.ended.set_result(-signal.SIGKILL)
            return
        ended = future.result()
        self.by = None if ended.by == "killed" else ended.by
        self.ended.set_result(ended.exit)


class ServerBox:
    """A sandbox, started when it is first needed, and again when it is lost."""

    def __init__(
        self,
        rules: SandboxRules,
        root: Path,
        variables: Mapping[str, str],
        python: PythonProgram | None = None,
        *,
        name: str = "",
        trusted: bool = False,
    ) -> None:
        forker = None
        if python is not None:
            plan = {"python": asdict(python)}
            forker = Forker(python.interpreter, LOADER, plan, dict(variables), f"{python.own}/workspace")
        self._sandbox = Sandbox(
            read=rules.shown,
            own=root,
            network="host",
            insist=True,
            closed_ports=rules.closed_ports,
            view=View(rules.read, rules.listed, rules.hidden),
            forker=forker,
            as_user=FIRST_UID + os.getpid(),  # all of one agent's servers, as they share folders
            guards=TRUSTED if trusted else GUARDS,
            kept=KEPT if trusted else (),
            name=name,
        )
        self._forking: Forking | None = None
        self.proven = False
        """Whether a server forked from it has ever started."""

    @property
    def running(self) -> bool:
        return self._sandbox.running

    @property
    def user(self) -> int:
        """The number of the user that its processes run as, once it is started."""
        return self._sandbox.user

    @property
    def not_preloaded(self) -> dict[str, str]:
        """Packages that servers import themselves, and why."""
        return dict(self._forking.news.get("not_preloaded", {})) if self._forking is not None else {}

    async def start(self) -> Capabilities:
        try:
            return await self._sandbox.start()
        except (SandboxError, UsageError) as error:
            raise McpError(f"No MCP server can be started: {error}") from None

    async def forking(self) -> str | None:
        """Why processes cannot be forked; None when they can."""
        await self.start()
        self._forking = await self._sandbox.forking()
        return self._forking.reason

    async def spawn(
        self,
        argv: Sequence[str],
        own: Path,
        env: Mapping[str, str],
        fds: Sequence[int],
        given: ServerLimits = UNLIMITED,
        *,
        forked: bool = False,
    ) -> Child:
        """Start a process with the descriptors `fds` as 0, 1, 2, …; closes them here. It works in `own`/workspace."""
        call = Call(
            argv=list(argv),
            env=env,
            cwd=str(own / "workspace"),
            workspace=own,
            limits=given.of_sandbox(),
            forked=forked,
        )
        try:
            child = Child(await self._sandbox.spawn(call, fds))
        except (SandboxError, UsageError) as error:
            raise McpError(f"No MCP server can be started: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)
        return child

    async def close(self) -> None:
        """End it and all its processes."""
        await self._sandbox.close()
