"""Leases the MCP servers of one machine to rollouts, and keeps spare ones ready.

- Rollouts wait in the order of their requests, each with a deadline.
- A server set is used once. At the end of a lease its processes are killed; the next rollout gets fresh ones. A few
  more sets than rollouts are kept ready, so that no rollout waits for a start. Spares that stay unused are ended.
- A start that fails is repeated with growing pauses. When several fail in a row, all waiting rollouts are refused with
  the reason, and nothing is started for a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from benchmax import limits, retries
from benchmax.cross_loop import settle
from benchmax.envs.mcp.agent.server_set import ServerSet, ServerSetLauncher, Tool
from benchmax.envs.mcp.timings import ServerMetrics
from benchmax.errors import BenchmaxError, McpError, ToolError

logger = logging.getLogger(__name__)

HOPELESS_SECONDS = 15.0
"""After failing this long without one success, no more starts are tried for REST_SECONDS."""
REST_SECONDS = 10.0
PING_SECONDS = 3.0
STALE_SECONDS = 30.0
"""Spares that have been ready for longer are pinged now and then."""


@dataclass(eq=False, slots=True)
class Lease:
    """A rollout's hold on a server set. The token gives access to the rollout."""

    rollout_id: str
    servers: ServerSet
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    clean: bool = True
    """Whether nothing has been changed yet, so that fresh servers can replace these."""
    on_lost: Callable[[str, str], None] | None = None
    replacing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while lost servers are replaced."""


@dataclass(eq=False, slots=True)
class _Waiter:
    servers: asyncio.Future[ServerSet]
    swap: bool
    """Whether it is a reset: the new set replaces the lease's old one."""


class LeasePool:
    """The server sets of one machine, leased to rollouts."""

    def __init__(self, launcher: ServerSetLauncher, capacity: int, spares: int) -> None:
        self._launcher = launcher
        self.capacity = capacity
        self._spares = spares
        self._ready: deque[ServerSet] = deque()
        self._leases: dict[str, Lease] = {}
        self._granted = 0
        self._waiters: deque[_Waiter] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._stopping: set[asyncio.Task[None]] = set()

        self._wanted, self._wanted_until = 0, 0.0
        self._failures, self._failing_since = 0, 0.0
        self._error: BenchmaxError | None = None
        self._paused_until = 0.0
        self._broken_until = 0.0
        self._closed = False
        self.metrics = ServerMetrics()
        self._maintaining = asyncio.ensure_future(self._maintain())

    # What rollouts ask for

    async def acquire(
        self, rollout_id: str, seconds: float, on_lost: Callable[[str, str], None] | None = None
    ) -> Lease:
        """Lease a server set to a rollout; McpError when none is free in time."""
        began = monotonic()
        servers = await self._take(seconds)
        lease = Lease(rollout_id, servers, on_lost=on_lost)
        self._leases[lease.token] = lease
        self._watch(lease)
        self.metrics.wait.add(monotonic() - began)
        return lease

    def lease(self, token: str) -> Lease:
        try:
            return self._leases[token]
        except KeyError:
            raise McpError("This rollout has no MCP servers, or no longer. Call init_rollout first.") from None

    async def release(self, token: str) -> None:
        """End a lease; does nothing when there is none with this token."""
        lease = self._leases.pop(token, None)
        if lease is not None:
            self._granted -= 1
            self._discard(lease.servers)
            self._pump()

    async def reset(self, token: str) -> None:
        """Replace a lease's servers and directory by fresh ones."""
        lease, began = self.lease(token), monotonic()
        fresh = await self._take(limits.MCP_WAIT_SECONDS, swap=True)
        if token not in self._leases:
            self._discard(fresh)
            self.lease(token)  # raises: it was released meanwhile
        old, lease.servers = lease.servers, fresh
        lease.clean = True
        self._discard(old)
        self._watch(lease)
        self.metrics.reset.add(monotonic() - began)

    async def call(self, token: str, name: str, arguments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Call a tool. When its server dies, a repeatable call of a clean lease is repeated once on fresh servers."""
        lease, began = self.lease(token), monotonic()
        servers = lease.servers
        tool = servers.tool(name)
        try:
            try:
                return await servers.call(name, arguments, seconds)
            except McpError:
                if not (servers.lost.done() and lease.clean and tool.repeatable and token in self._leases):
                    raise
                self.metrics.retries += 1
                await self._replace(lease, servers)
                return await lease.servers.call(name, arguments, seconds)
        except (McpError, ToolError):
            self.metrics.failures += 1
            raise
        finally:
            lease.clean &= tool.read_only
            self.metrics.call.add(monotonic() - began)

    async def _replace(self, lease: Lease, lost: ServerSet) -> None:
        """Replace a lease's lost servers once, however many calls lost them."""
        async with lease.replacing:
            if lease.servers is lost:
                await self.reset(lease.token)

    async def tools(self, seconds: float) -> dict[str, Tool]:
        """The tools of the servers; starts a set if none has been started yet."""
        if self._launcher.tools is None:
            lease = await self.acquire("list_tools", seconds)
            await self.release(lease.token)
        assert self._launcher.tools is not None
        return self._launcher.tools

    async def warm(self, number: int, seconds: float) -> int:
        """Start this many server sets in addition to the leased ones. Returns how many are ready."""
        self._wanted = min(self.capacity, len(self._leases) + number)
        self._wanted_until = monotonic() + limits.MCP_IDLE_SECONDS
        until = monotonic() + seconds
        self._pump()
        while len(self._ready) + len(self._leases) < self._wanted and monotonic() < until and not self._closed:
            if self._broken():
                raise self._start_error()
            if self._starting:
                await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED, timeout=until - monotonic())
            else:
                await asyncio.sleep(0.05)  # a pause after a failure
        return len(self._ready)

    # Waiting and starting

    async def _take(self, seconds: float, swap: bool = False) -> ServerSet:
        """Wait for the next server set. `swap`: it replaces one that the caller has, and comes first."""
        if self._closed:
            raise McpError("The MCP servers were shut down. Open the environment again.")
        if self._broken():
            raise self._start_error()
        waiter = _Waiter(asyncio.get_running_loop().create_future(), swap)
        self._waiters.appendleft(waiter) if swap else self._waiters.append(waiter)
        self._pump()
        try:
            done, _ = await asyncio.wait([waiter.servers], timeout=seconds)
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        if done:
            return waiter.servers.result()
        self._withdraw(waiter)
        raise McpError(
            f"No MCP server became free within {seconds:g} s: all {self.capacity} are in use. "
            "Run fewer rollouts at once, or more servers."
        )

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.servers.done() and waiter.servers.exception() is None:
            self._granted -= not waiter.swap
            self._discard(waiter.servers.result())
        self._pump()

    def _pump(self) -> None:
        """Hand ready server sets to those who wait, and start what is missing."""
        while self._waiters and self._ready and (self._waiters[0].swap or self._granted < self.capacity):
            servers = self._ready.popleft()
            if servers.lost.done():
                self._discard(servers)
                continue
            waiter = self._waiters.popleft()
            self._granted += not waiter.swap
            waiter.servers.set_result(servers)
        at_once = 1 if self._failures else usable_cores()
        paused = monotonic() < self._paused_until
        while not paused and len(self._starting) < at_once and self._live() < self._target():
            task = asyncio.ensure_future(self._start())
            self._starting.add(task)
            task.add_done_callback(self._started)

    def _live(self) -> int:
        return self._granted + len(self._ready) + len(self._starting)

    def _target(self) -> int:
        if self._closed:
            return 0
        swaps = sum(waiter.swap for waiter in self._waiters)
        waiting = swaps + min(len(self._waiters) - swaps, self.capacity - self._granted)
        used = self._granted + waiting
        spares = self._spares if used or self._wanted_until > monotonic() else 0
        wanted = self._wanted if self._wanted_until > monotonic() else 0
        return min(max(used + spares, wanted), self.capacity + self._spares + swaps)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        self._pump()

    async def _start(self) -> None:
        began = monotonic()
        try:
            servers = await self._launcher.launch()
        except BenchmaxError as error:
            self._failed(error, began)
            return
        except Exception as error:
            logger.exception("Starting MCP servers failed.")
            self._failed(McpError(f"No MCP server can be started: {type(error).__name__}: {error}."), began)
            return
        self.metrics.start.add(monotonic() - began)
        self._failures, self._error = 0, None
        if self._closed:
            self._discard(servers)
            return
        self._ready.append(servers)
        servers.lost.add_done_callback(lambda _: self._died_ready(servers))

    def _failed(self, error: BenchmaxError, began: float) -> None:
        self.metrics.start_failures += 1
        if not self._failures:
            self._failing_since = began
        self._failures += 1
        self._error = error
        pause = retries.pause(self._failures, 0.2, 2.0)
        if self._failures >= limits.MCP_START_TRIES or monotonic() - self._failing_since > HOPELESS_SECONDS:
            pause = REST_SECONDS
            self._failures = limits.MCP_START_TRIES - 1  # one more try after the pause
            self._broken_until = monotonic() + pause
            self._refuse_waiters(self._start_error())
        self._paused_until = monotonic() + pause
        asyncio.get_running_loop().call_later(pause, self._pump)

    def _refuse_waiters(self, error: BenchmaxError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            settle(waiter.servers, None, error)

    def _broken(self) -> bool:
        """Whether so many starts failed that requests are refused for a while."""
        return monotonic() < self._broken_until and self._error is not None

    def _start_error(self) -> BenchmaxError:
        return McpError(
            f"The MCP servers cannot be started. {self._error}\n"
            f"Correct the server. The next start is tried in {REST_SECONDS:g} s."
        )

    # Loss

    def _died_ready(self, servers: ServerSet) -> None:
        if servers in self._ready:
            self._ready.remove(servers)
            self.metrics.crashes += 1
            logger.warning("A spare was lost. %s", servers.lost.result())
            self._discard(servers)
            self._pump()

    def _watch(self, lease: Lease) -> None:
        servers = lease.servers

        def lost(reason: asyncio.Future[str]) -> None:
            if lease.servers is servers and lease.token in self._leases:
                self.metrics.crashes += 1
                if lease.on_lost is not None:
                    lease.on_lost(lease.token, reason.result())

        servers.lost.add_done_callback(lost)

    def _discard(self, servers: ServerSet) -> None:
        task = asyncio.ensure_future(servers.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _maintain(self) -> None:
        """End spares that have not been needed for long, and those that no longer answer."""
        while True:
            await asyncio.sleep(min(10.0, limits.MCP_IDLE_SECONDS / 4))
            target, now = self._target(), monotonic()
            while self._ready and self._live() > target and now - self._ready[0].since > limits.MCP_IDLE_SECONDS:
                self._discard(self._ready.popleft())
                self.metrics.reaped += 1
            for servers in [servers for servers in self._ready if now - servers.since > STALE_SECONDS]:
                if not await servers.healthy(PING_SECONDS) and servers in self._ready:
                    self._ready.remove(servers)
                    self.metrics.crashes += 1
                    self._discard(servers)
            self._pump()

    def state(self) -> dict[str, Any]:
        """Counts and timings, for `env.state()`."""
        return {
            "capacity": self.capacity, "leased": len(self._leases), "ready": len(self._ready),
            "starting": len(self._starting), "waiting": len(self._waiters), "left_out": dict(self._launcher.left_out),
            **self.metrics.to_dict(),
        }  # fmt: skip

    def pids(self) -> list[int]:
        return [pid for servers in self._all() for pid in servers.pids]

    def pids_of_rollouts(self) -> dict[str, list[int]]:
        return {lease.rollout_id: lease.servers.pids for lease in self._leases.values()}

    def _all(self) -> list[ServerSet]:
        return [*self._ready, *(lease.servers for lease in self._leases.values())]

    async def close(self) -> None:
        self._closed = True
        self._maintaining.cancel()
        self._refuse_waiters(McpError("The MCP servers were shut down. Open the environment again."))
        for task in list(self._starting):
            task.cancel()
        for servers in self._all():
            self._discard(servers)
        self._ready.clear()
        self._leases.clear()
        if pending := [*self._starting, *self._stopping]:
            await asyncio.wait(pending, timeout=4.0)


def usable_cores() -> int:
    """The processors that this process may use, where the system says it; else all of them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
