"""The sandbox of one server's processes, or of the rewards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmax import limits
from benchmax.envs.mcp.fork.loader import LOADER
from benchmax.envs.mcp.fork.python_program import PythonProgram
from benchmax.errors import McpError, SandboxError, UsageError
from benchmax.sandbox import Call, Capabilities, Forker, Forking, Limits, Network, Process, Sandbox, View
from benchmax.sandbox.inside.guards import FIRST_UID, GUARDS

OPEN_FILES = 4096
TRUSTED_GUARDS = ("no_new_privs", "landlock_files", "landlock_scope", "capabilities", "descriptors")
"""The guards of rewards, which are the user's own code."""
KEPT_CAPABILITIES = (0, 1, 3, 4, 10)
"""Capabilities that root's rewards keep: ownership and access of files as listed, and low ports."""


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """What servers may read, and which ports they may not reach."""

    read: tuple[str, ...]
    """Paths that they may read as a whole."""
    confined: bool
    """Whether the kernel enforces this."""
    listed: tuple[str, ...] = ()
    """Folders that they may read in part: their names may be listed, as imports need."""
    shown: tuple[str, ...] = ()
    """Paths that they see at all; `read` lies in them."""
    hidden: tuple[str, ...] = ()
    """Paths in `shown` that are covered."""
    closed_ports: tuple[int, ...] = ()
    """TCP ports that they cannot connect to; each costs a server some time, and memory of the kernel."""


def server_limits(memory: int | None, network: Network = "host", port: int | None = None) -> Limits:
    """What one process may use with all that it starts; `port` is the one that it is called on."""
    return Limits(
        wall_seconds=None, cpu_seconds=None, memory_bytes=memory, processes=limits.MCP_PROCESSES,
        open_files=OPEN_FILES, folder_bytes=limits.MCP_DISK_BYTES, network=network, port=port,
    )  # fmt: skip


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
            guards=TRUSTED_GUARDS if trusted else GUARDS,
            kept=KEPT_CAPABILITIES if trusted else (),
            name=name,
        )
        self._forking: Forking | None = None
        self.proven = False
        """Whether a server forked from it has ever started."""

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
        given: Limits | None = None,
        *,
        forked: bool = False,
    ) -> Process:
        """Start a process with the descriptors `fds` as 0, 1, 2, …; closes them here. It works in `own`/workspace."""
        call = Call(
            argv=list(argv), env=env, cwd=str(own / "workspace"), workspace=own,
            limits=given or server_limits(memory=None), forked=forked,
        )  # fmt: skip
        try:
            return await self._sandbox.spawn(call, fds)
        except (SandboxError, UsageError) as error:
            raise McpError(f"No MCP server can be started: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)

    async def close(self) -> None:
        """End it and all its processes."""
        await self._sandbox.close()
