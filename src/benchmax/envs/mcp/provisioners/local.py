"""An agent on this machine, as a child of this process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmax.envs.mcp.agent.rollout_dirs import claimed, remove, sweep
from benchmax.envs.mcp.packed_workdir import Luggage, left_behind
from benchmax.envs.mcp.provisioners.base import BaseProvisioner, agent_arguments
from benchmax.envs.mcp.workdir import find_config
from benchmax.errors import EnvDefinitionError

logger = logging.getLogger(__name__)

START_SECONDS = 1_860.0
"""setup.sh may install a great deal."""
STOP_SECONDS = 5.0


class LocalProvisioner(BaseProvisioner):
    """Runs the servers of a workdir here, up to `num_servers` rollouts at once.

    The workdir is copied, and the copy is gone when the environment shuts down or this process ends. setup.sh is run in
    a second copy, which is kept: it runs once for its content, or each time with `setup_again`. `on_setup` is told in
    words when it runs and how long it took; without one, this module's logger is. The agent listens on a private
    socket; give `base_port` to have it listen on that port of 127.0.0.1.
    `server_memory`, such as "512MB", is what a server may take when the configuration does not say.
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
            raise ValueError(f"num_servers must be at least 1, not {num_servers}. Give more.")
        if base_port is not None and not 1024 <= base_port <= 65536 - num_servers:
            raise ValueError(f"base_port must be from 1024 to {65536 - num_servers}, not {base_port}. Choose another.")
        self._workdir = Path(workdir_path).expanduser().resolve()
        find_config(self._workdir)
        self._num_servers = num_servers
        self._base_port = base_port
        self._spares = spares
        origin = workdir_path.origin if isinstance(workdir_path, Luggage) else str(self._workdir)
        self._told = [*agent_arguments(num_servers, server_memory), "--setup-for", origin]
        self._setup_again = setup_again
        self._on_setup = on_setup or logger.warning
        self._agent: _AgentProcess | None = None

    @property
    def num_servers(self) -> int:
        return self._num_servers

    async def provision_servers(self, api_secret: str) -> list[str]:
        if self._agent is not None:
            raise RuntimeError("These servers are provisioned already. Tear them down first.")
        self._agent = _AgentProcess(self._workdir, self._arguments(), self._on_setup)
        self._setup_again = False  # not for a successor
        try:
            return [await self._agent.start(api_secret)]
        except BaseException:
            await self.teardown()
            raise

    def _arguments(self) -> list[str]:
        arguments = list(self._told)
        if self._setup_again:
            arguments += ["--setup-again"]
        if self._spares is not None:
            arguments += ["--spares", str(self._spares)]
        if self._base_port is not None:
            arguments += ["--listen", f"127.0.0.1:{self._base_port}"]
        return arguments

    async def recover(self, address: str, api_secret: str) -> str | None:
        """Start another agent, if the old one is dead."""
        if self._agent is None:
            return None
        if self._agent.alive:
            return address
        await self.teardown()
        return (await self.provision_servers(api_secret))[0]

    async def teardown(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.stop()


class _AgentProcess:
    """The agent, tied to this process by its standard input."""

    def __init__(self, workdir: Path, arguments: list[str], on_setup: Callable[[str], None]) -> None:
        self._workdir = workdir
        self._arguments = arguments
        self._on_setup = on_setup
        self._process: subprocess.Popen[bytes] | None = None
        self._root: Path | None = None
        self._errors: deque[str] = deque(maxlen=20)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self, secret: str) -> str:
        await asyncio.to_thread(sweep)
        self._root = claimed("benchmax-mcp-")  # short, as a socket's path must be
        copy = self._root / "workdir"
        await asyncio.to_thread(shutil.copytree, self._workdir, copy, symlinks=True, ignore=left_behind)
        if "--listen" not in self._arguments:
            self._arguments += ["--listen", f"unix:{self._root}/agent"]
        self._process = self._spawn(copy)
        threading.Thread(target=self._keep_errors, daemon=True).start()
        assert self._process.stdin is not None
        self._process.stdin.write(secret.encode() + b"\n")
        self._process.stdin.flush()
        return await self._ready()

    def _spawn(self, workdir: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "benchmax.envs.mcp.agent", "--workdir", str(workdir)]
        return subprocess.Popen(
            [*command, "--root", str(self._root), "--lifeline", *self._arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    async def _ready(self) -> str:
        assert self._process is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                while "setup" in (message := await self._heard()):
                    self._on_setup(_setup_words(self._workdir, message))
        except TimeoutError:
            raise EnvDefinitionError(
                f"The MCP agent did not start within {START_SECONDS:g} s. Shorten setup.sh."
            ) from None
        if "ready" in message:
            return str(message["ready"]["address"])
        why = message.get("failed") or "\n".join(self._errors) or f"exit code {self._process.wait()}"
        raise EnvDefinitionError(f"The MCP agent cannot start: {why}")

    async def _heard(self) -> dict[str, Any]:
        """The next line that the agent prints; nothing when it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        return dict(json.loads(line)) if line.startswith(b"{") else {}

    def _keep_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.decode("utf-8", "replace").rstrip())
        self._process.stderr.close()

    async def stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._stop, self._process)
        if self._root is not None:
            await asyncio.to_thread(remove, self._root)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _setup_words(workdir: Path, message: Mapping[str, Any]) -> str:
    if message["setup"] == "begins":
        why = "again, as asked" if message["again"] else "as it has not been with this content"
        return f"setup.sh of {workdir} is run, {why}."
    done = f"setup.sh is done after {message['seconds']:.1f} s."
    if message["kept"]:
        return f"{done} What it made is kept until it, or a file it names, changes; `benchmax mcp setup` runs it again."
    return f"{done} It left programs running, so it is run each time."
