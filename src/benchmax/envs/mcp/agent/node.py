"""All that one machine does for rollouts, without the network: seats, tools, files, rewards."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.mcp.agent.install import Installed
from benchmax.envs.mcp.agent.lease_pool import Lease, Stock
from benchmax.envs.mcp.agent.rewards import Rewards
from benchmax.envs.mcp.agent.server_set import Seats
from benchmax.envs.mcp.agent.servers import Launcher
from benchmax.envs.mcp.agent.workspace_files import Incoming, open_outgoing, read_piece
from benchmax.envs.mcp.fork.fork_server_client import Rules
from benchmax.envs.mcp.fork.read_rules import reward_rules, server_rules
from benchmax.envs.mcp.workdir import Workdir
from benchmax.errors import McpError, RewardError

PIECE_BYTES = limits.MIB
ASKABLE = frozenset({"resources/list", "resources/read", "resources/templates/list", "prompts/list", "prompts/get"})
"""What may be asked of servers besides tools."""

Notice = Callable[[dict[str, Any]], None]


class Node:
    """The servers of one workdir on this machine."""

    def __init__(
        self,
        workdir: Workdir,
        root: Path,
        installed: Installed,
        servers: int,
        spares: int | None = None,
        server_memory: str | None = None,
    ) -> None:
        seats_root = root / "seats"
        seats_root.mkdir(mode=0o700)
        self._rules = _with(server_rules(workdir, root, installed.path), installed)
        self._launcher = Launcher(workdir, self._rules, installed.path, seats_root, server_memory)
        if spares is None:
            spares = min(servers, 2 * len(os.sched_getaffinity(0)))
        self.stock = Stock(Seats(self._launcher, seats_root), servers, spares)
        self._rewards: Rewards | None = None
        if workdir.reward_file is not None:
            wider = _with(reward_rules(workdir, root, installed.path), installed)
            self._rewards = Rewards(workdir.reward_file, wider, installed.python, installed.path, seats_root)
        self._launcher.preload()

    def told(self) -> dict[str, Any]:
        """What a client learns when it connects."""
        return {
            "servers": self.stock.capacity,
            "names": [spec.name for spec in self._launcher.specs],
            "confined": self._rules.confined,
            "rewards": self._rewards is not None,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
        }

    def state(self) -> dict[str, Any]:
        return {
            **self.stock.state(), "not_forked": self._launcher.not_forked, "confined": self._rules.confined,
            "not_preloaded": self._launcher.not_preloaded, "unread": self._launcher.unread,
        }  # fmt: skip

    async def open(self, rollout_id: str, seconds: float, notice: Notice | None = None) -> Lease:
        def lost(token: str, words: str) -> None:
            if notice is not None:
                notice({"lost": token, "reason": words})

        return await self.stock.acquire(rollout_id, seconds, lost)

    async def tools(self, seconds: float = limits.TOOL_SECONDS) -> list[dict[str, Any]]:
        return [tool.told() for tool in (await self.stock.tools(seconds)).values()]

    async def request(self, token: str, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        if method not in ASKABLE:
            raise McpError(
                f"{method!r} is not something to ask MCP servers here. Use one of {', '.join(sorted(ASKABLE))}."
            )
        return await self.stock.lease(token).seat.request(method, params, seconds)

    def incoming(self, token: str, path: str) -> Incoming:
        lease = self.stock.lease(token)
        lease.clean = False
        return Incoming(lease.seat.places.workspace, path)

    def read(self, token: str, path: str, offset: int, size: int = PIECE_BYTES) -> tuple[bytes, int]:
        """A piece of a file, and the size of the whole."""
        fd, whole = open_outgoing(self.stock.lease(token).seat.places.workspace, path)
        try:
            os.lseek(fd, max(0, offset), os.SEEK_SET)
            return read_piece(fd, min(size, PIECE_BYTES)), whole
        finally:
            os.close(fd)

    async def reward(self, token: str, task: Mapping[str, Any], seconds: float, notice: Notice) -> dict[str, Any]:
        """What reward_fn.py says of a rollout: name → {"value"}, {"unscored"} or {"error"}."""
        if self._rewards is None:
            raise RewardError("This workdir has no reward_fn.py. Add one, or override compute_reward.")
        lease = self.stock.lease(token)
        await lease.seat.check()

        async def ask(what: str, given: dict[str, Any]) -> Any:
            if what == "call":
                return await self.stock.call(token, str(given["name"]), dict(given["arguments"]), limits.TOOL_SECONDS)
            if what == "tools":
                return await self.tools()
            return await self.request(token, str(given["method"]), dict(given["params"]), limits.TOOL_SECONDS)

        def log(level: int, name: str, line: str) -> None:
            notice({"log": [token, level, name, line]})

        return await self._rewards.compute(lease.seat, {**task, "rollout_id": lease.rollout_id}, ask, log, seconds)

    async def close(self) -> None:
        await self.stock.close()
        closing = [self._launcher.close()]
        if self._rewards is not None:
            closing.append(self._rewards.close())
        await asyncio.gather(*closing)


def _with(rules: Rules, installed: Installed) -> Rules:
    """With what setup.sh installed."""
    read, listed = map(str, installed.folders), map(str, installed.listed)
    return replace(rules, read=(*rules.read, *read), listed=(*rules.listed, *listed))
