"""An agent on this machine, as a child of this process."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmax.envs.mcp.packed_workdir import PackedWorkdir, copy_workdir
from benchmax.envs.mcp.provisioners.agent_process import START_SECONDS, AgentProcess
from benchmax.envs.mcp.provisioners.base import BaseProvisioner, agent_arguments
from benchmax.envs.mcp.workdir import workdir_folder
from benchmax.errors import EnvDefinitionError

logger = logging.getLogger(__name__)

SOCKET_PATH_BYTES = 100
"""The longest path that every system accepts for a Unix socket: macOS 103 bytes, Linux 107."""


class LocalProvisioner(BaseProvisioner):
    """Runs the servers of a workdir here, up to `num_servers` rollouts at once.

    The workdir is copied; the copy is removed when the environment shuts down or this process ends. setup.sh runs in a
    second copy, which is kept: it runs once for its content, or again with `setup_again`. `on_setup` is called with a
    message when it runs and when it is done; by default the message is logged. The agent listens on a private socket
    (where its path would be too long for one, on a free port of 127.0.0.1), or with `base_port` on that port.
    `server_memory`, such as "512MB", is the limit of servers whose configuration has none.
    """

    def __init__(
        self,
        workdir_path: str | os.PathLike[str],
        num_servers: int = 1,
        base_port: int | None = None,
        spares: int | None = None,
        server_memory: str | None = None,
        setup_again: bool = False,
        on_setup: Callable[[str], None] | None = None,
    ) -> None:
        if num_servers < 1:
            raise EnvDefinitionError(f"num_servers must be at least 1, not {num_servers}. Give more.")
        if spares is not None and spares < 0:
            raise EnvDefinitionError(f"spares must be at least 0, not {spares}. Give more.")
        if base_port is not None and not 1024 <= base_port <= 65536 - num_servers:
            raise EnvDefinitionError(
                f"base_port must be from 1024 to {65536 - num_servers}, not {base_port}. Choose another."
            )
        self._workdir = workdir_folder(workdir_path)
        self._num_servers = num_servers
        self._base_port = base_port
        self._spares = spares
        origin = workdir_path.origin if isinstance(workdir_path, PackedWorkdir) else str(self._workdir)
        self._agent_arguments = [*agent_arguments(num_servers, server_memory), "--setup-for", origin]
        self._setup_again = setup_again
        self._on_setup = on_setup or logger.warning
        self._agent: AgentProcess | None = None

    @property
    def num_servers(self) -> int:
        return self._num_servers

    async def provision_servers(self, api_secret: str) -> list[str]:
        if self._agent is not None:
            raise RuntimeError("These servers are provisioned already. Tear them down first.")
        agent = self._agent = AgentProcess()
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.to_thread(agent.prepare, partial(copy_workdir, self._workdir))
                agent.start(self._arguments(agent), api_secret)
                self._setup_again = False  # not for a successor
                return [await asyncio.to_thread(agent.wait_ready, self._report_setup)]
        except BaseException as error:
            await self.teardown()
            if isinstance(error, TimeoutError):
                raise EnvDefinitionError(
                    f"The MCP agent did not start within {START_SECONDS:g} s. Shorten setup.sh."
                ) from None
            raise

    def _report_setup(self, message: Mapping[str, Any]) -> None:
        self._on_setup(_setup_message(self._workdir, message))

    def _arguments(self, agent: AgentProcess) -> list[str]:
        arguments = [*self._agent_arguments, "--listen", self._address_for(agent)]
        if self._setup_again:
            arguments += ["--setup-again"]
        if self._spares is not None:
            arguments += ["--spares", str(self._spares)]
        return arguments

    def _address_for(self, agent: AgentProcess) -> str:
        if self._base_port is not None:
            return f"127.0.0.1:{self._base_port}"
        path = f"{agent.root}/agent"
        return f"unix:{path}" if len(os.fsencode(path)) <= SOCKET_PATH_BYTES else "127.0.0.1:0"

    async def recover(self, address: str, api_secret: str) -> str | None:
        """Start another agent if this one has ended."""
        if self._agent is None:
            return None
        if self._agent.alive:
            return address
        await self.teardown()
        return (await self.provision_servers(api_secret))[0]

    async def teardown(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            await asyncio.to_thread(agent.stop)


def _setup_message(workdir: Path, message: Mapping[str, Any]) -> str:
    if message["setup"] == "begins":
        why = "again, as requested" if message["again"] else "for the first time with this content"
        return f"Running setup.sh of {workdir} {why}."
    done = f"setup.sh is done after {message['seconds']:.1f} s."
    if message["kept"]:
        return f"{done} Its results are kept until it, or a file it names, changes; `benchmax mcp setup` runs it again."
    return f"{done} It left programs running, so it runs each time."
