"""What one machine does for rollouts, without the network: leases, tools, files, rewards."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.mcp.agent.lease_pool import Lease, LeasePool, usable_cores
from benchmax.envs.mcp.agent.reward_runner import RewardRunner
from benchmax.envs.mcp.agent.rollout_dirs import make_rollouts_dir
from benchmax.envs.mcp.agent.server_launcher import ServerLauncher
from benchmax.envs.mcp.agent.server_set import ServerSetLauncher
from benchmax.envs.mcp.agent.workspace_files import Upload, open_download
from benchmax.envs.mcp.fork.read_rules import reward_rules, server_rules
from benchmax.envs.mcp.fork.server_sandbox import SandboxRules
from benchmax.envs.mcp.frame_socket import CHUNK_BYTES
from benchmax.envs.mcp.setup.install import Installed
from benchmax.envs.mcp.workdir import PRIVATE_NAMES, Workdir
from benchmax.errors import McpError, RewardError
from benchmax.sandbox import Capabilities
from benchmax.sandbox.connection import SANDBOXED

ASKABLE = frozenset({"resources/list", "resources/read", "resources/templates/list", "prompts/list", "prompts/get"})
"""Methods that clients may call on servers, in addition to tools."""

Notice = Callable[[dict[str, Any]], None]


class Node:
    """The MCP servers of one workdir on this machine."""

    def __init__(
        self,
        workdir: Workdir,
        root: Path,
        installed: Installed,
        servers: int,
        spares: int | None = None,
        server_memory: str | None = None,
        closed_ports: Sequence[int] = (),
    ) -> None:
        rollouts = make_rollouts_dir(root, workdir.path)
        self._rules = _with(server_rules(workdir, root, installed.path), installed)
        self._launcher = ServerLauncher(
            workdir, self._rules, installed.path, rollouts, server_memory, closed_ports=closed_ports
        )
        if spares is None:
            spares = min(servers, 2 * usable_cores())
        self.leases = LeasePool(ServerSetLauncher(self._launcher, rollouts), servers, spares)
        self._holds: Capabilities | None = None
        self._rewards: RewardRunner | None = None
        if workdir.reward_file is not None:
            wider = _with(reward_rules(workdir, root, installed.path), installed)
            self._rewards = RewardRunner(workdir.reward_file, wider, installed.python, installed.path, rollouts)

    async def prepare(self) -> None:
        """Begin what the first rollout would wait for."""
        self._holds = await self._launcher.prepare()

    def about(self) -> dict[str, Any]:
        """What a client is sent when it connects."""
        return {
            "servers": self.leases.capacity,
            "names": [spec.name for spec in self._launcher.specs],
            "confined": self._rules.confined,
            "sandbox": self._holds.describe() if self._holds is not None else "",
            "boundary": self._holds is None or self._holds.level == "boundary" or SANDBOXED in os.environ,
            "rewards": self._rewards is not None,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
        }

    def state(self) -> dict[str, Any]:
        return {
            **self.leases.state(), "not_forked": self._launcher.not_forked, "confined": self._rules.confined,
            "not_preloaded": self._launcher.not_preloaded, "unread": self._launcher.unread,
        }  # fmt: skip

    async def open(self, rollout_id: str, seconds: float, notice: Notice | None = None) -> Lease:
        def lost(token: str, reason: str) -> None:
            if notice is not None:
                notice({"lost": token, "reason": reason})

        return await self.leases.acquire(rollout_id, seconds, lost)

    async def tools(self, seconds: float = limits.TOOL_SECONDS) -> list[dict[str, Any]]:
        return [tool.to_dict() for tool in (await self.leases.tools(seconds)).values()]

    async def request(self, token: str, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        if method not in ASKABLE:
            raise McpError(f"{method!r} cannot be called on MCP servers here. Use one of {', '.join(sorted(ASKABLE))}.")
        return await self.leases.lease(token).servers.request(method, params, seconds)

    def upload(self, token: str, path: str) -> Upload:
        lease = self.leases.lease(token)
        lease.clean = False
        return Upload(lease.servers.dirs.workspace, path)

    def read(self, token: str, path: str, offset: int) -> tuple[bytes, int]:
        """A chunk of a file, and the size of the file."""
        with open_download(self.leases.lease(token).servers.dirs.workspace, path) as file:
            file.seek(max(0, offset))
            return file.read(CHUNK_BYTES), os.fstat(file.fileno()).st_size

    async def reward(self, token: str, task: Mapping[str, Any], seconds: float, notice: Notice) -> dict[str, Any]:
        """Run reward_fn.py for a rollout: name → {"value"}, {"unscored"} or {"error"}."""
        if self._rewards is None:
            raise RewardError("This workdir has no reward_fn.py. Add one, or override compute_reward.")
        lease = self.leases.lease(token)
        await lease.servers.check()

        async def ask(what: str, given: dict[str, Any]) -> Any:
            if what == "call":
                return await self.leases.call(token, str(given["name"]), dict(given["arguments"]), limits.TOOL_SECONDS)
            if what == "tools":
                return await self.tools()
            return await self.request(token, str(given["method"]), dict(given["params"]), limits.TOOL_SECONDS)

        def log(level: int, name: str, line: str) -> None:
            notice({"log": [token, level, name, line]})

        return await self._rewards.compute(lease.servers, {**task, "rollout_id": lease.rollout_id}, ask, log, seconds)

    async def close(self) -> None:
        await self.leases.close()
        closing = [self._launcher.close()]
        if self._rewards is not None:
            closing.append(self._rewards.close())
        await asyncio.gather(*closing)


def _with(rules: SandboxRules, installed: Installed) -> SandboxRules:
    """The rules with read access to what setup.sh installed."""
    read, listed = tuple(map(str, installed.folders)), tuple(map(str, installed.listed))
    hidden = (str(folder / name) for folder in installed.listed for name in PRIVATE_NAMES)
    return replace(
        rules,
        read=(*rules.read, *read),
        listed=(*rules.listed, *listed),
        shown=(*rules.shown, *read, *listed),
        hidden=(*rules.hidden, *hidden),
    )
