"""The seats of one machine: who has one, who waits for one, and how many are kept ready.

- Rollouts wait in the order they came, each with a deadline.
- A seat is used once. When it is given back its processes are ended; the next rollout gets fresh ones. A few more seats
  than rollouts are kept ready, so that nobody waits for a start.
- As many are kept as were in use lately. Those nobody uses are ended.
- A start that fails is tried again, with growing pauses; when several fail in a row, everybody who waits is told why,
  and for a while nothing is tried at all.
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
from benchmax.envs.mcp.agent.server_set import Seat, Seats, Tool
from benchmax.envs.mcp.agent.timings import Metrics
from benchmax.errors import BenchmaxError, McpError, ToolError

logger = logging.getLogger(__name__)

HOPELESS_SECONDS = 15.0
"""Failing this long without one success counts as often enough."""
REST_SECONDS = 10.0
"""Nothing is started for this long after that."""
PING_SECONDS = 3.0
STALE_SECONDS = 30.0
"""A seat that lies ready for longer is asked, now and then, whether it still answers."""


@dataclass(eq=False, slots=True)
class Lease:
    """A rollout's hold on a seat. Whoever has the token has the rollout."""

    rollout_id: str
    seat: Seat
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    clean: bool = True
    """Nothing has been changed yet, so that fresh servers are as good as these."""
    on_lost: Callable[[str, str], None] | None = None


@dataclass(eq=False, slots=True)
class _Waiter:
    seat: asyncio.Future[Seat]
    swap: bool
    """Whether it gives one back for it."""


class Stock:
    """Seats, given to rollouts."""

    def __init__(self, seats: Seats, capacity: int, spares: int, idle_seconds: float = limits.MCP_IDLE_SECONDS) -> None:
        self._seats = seats
        self.capacity = capacity
        self._spares = spares
        self._idle_seconds = idle_seconds
        self._ready: deque[Seat] = deque()
        self._leases: dict[str, Lease] = {}
        self._granted = 0
        self._waiters: deque[_Waiter] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        self._cores = max(1, len(os.sched_getaffinity(0)))
        self._wanted, self._wanted_until = 0, 0.0
        self._failures, self._failing_since = 0, 0.0
        self._error: BenchmaxError | None = None
        self._paused_until = 0.0
        self._broken_until = 0.0
        self._closed = False
        self.metrics = Metrics()
        self._keeper = asyncio.ensure_future(self._look_after())

    # What rollouts ask for

    async def acquire(
        self, rollout_id: str, seconds: float, on_lost: Callable[[str, str], None] | None = None
    ) -> Lease:
        """A seat of one's own; McpError when there is none in time."""
        began = monotonic()
        seat = await self._take(seconds)
        lease = Lease(rollout_id, seat, on_lost=on_lost)
        self._leases[lease.token] = lease
        self._watch(lease)
        self.metrics.waits.add(monotonic() - began)
        return lease

    def lease(self, token: str) -> Lease:
        try:
            return self._leases[token]
        except KeyError:
            raise McpError("This rollout has no MCP servers, or no longer. Call init_rollout first.") from None

    async def release(self, token: str) -> None:
        """Give a seat back; a token nobody has is nothing to give back."""
        lease = self._leases.pop(token, None)
        if lease is not None:
            self._granted -= 1
            self._discard(lease.seat)
            self._pump()

    async def reset(self, token: str) -> None:
        """Fresh processes and an empty directory under the same token."""
        lease, began = self.lease(token), monotonic()
        fresh = await self._take(limits.MCP_WAIT_SECONDS, swap=True)
        if token not in self._leases:
            self._discard(fresh)
            self.lease(token)  # raises: it was released meanwhile
        old, lease.seat = lease.seat, fresh
        lease.clean = True
        self._discard(old)
        self._watch(lease)
        self.metrics.resets.add(monotonic() - began)

    async def call(self, token: str, name: str, arguments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Run a tool. When its server dies, a call that may be repeated is, on fresh servers if they know no less."""
        lease, began = self.lease(token), monotonic()
        tool = lease.seat.tool(name)
        try:
            try:
                return await lease.seat.call(name, arguments, seconds)
            except McpError:
                if not (lease.seat.lost.done() and lease.clean and tool.repeatable and token in self._leases):
                    raise
                self.metrics.retries += 1
                await self.reset(token)
                return await lease.seat.call(name, arguments, seconds)
        except (McpError, ToolError):
            self.metrics.failures += 1
            raise
        finally:
            lease.clean &= tool.read_only
            self.metrics.calls.add(monotonic() - began)

    async def tools(self, seconds: float) -> dict[str, Tool]:
        """The tools of the servers, of which one set is started to ask if none ever was."""
        if self._seats.tools is None:
            lease = await self.acquire("list_tools", seconds)
            await self.release(lease.token)
        assert self._seats.tools is not None
        return self._seats.tools

    async def warm(self, number: int, seconds: float) -> int:
        """Have this many seats ready, beside those in use. Gives how many are."""
        self._wanted = min(self.capacity, len(self._leases) + number)
        self._wanted_until = monotonic() + self._idle_seconds
        until = monotonic() + seconds
        self._pump()
        while len(self._ready) + len(self._leases) < self._wanted and monotonic() < until and not self._closed:
            if self._broken():
                raise self._why()
            if self._starting:
                await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED, timeout=until - monotonic())
            else:
                await asyncio.sleep(0.05)  # a pause after a failure
        return len(self._ready)

    # Taking and giving

    async def _take(self, seconds: float, swap: bool = False) -> Seat:
        """The next seat, when it is this caller's turn. `swap`: in place of the one it has."""
        if self._closed:
            raise McpError("The MCP servers were shut down. Open the environment again.")
        if self._broken():
            raise self._why()
        waiter = _Waiter(asyncio.get_running_loop().create_future(), swap)
        self._waiters.appendleft(waiter) if swap else self._waiters.append(waiter)
        self._pump()
        try:
            done, _ = await asyncio.wait([waiter.seat], timeout=seconds)
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        if done:
            return waiter.seat.result()
        self._withdraw(waiter)
        raise McpError(
            f"No MCP server became free within {seconds:g} s: all {self.capacity} are in use. "
            "Run fewer rollouts at once, or more servers."
        )

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.seat.done() and waiter.seat.exception() is None:
            self._granted -= not waiter.swap
            self._discard(waiter.seat.result())
        self._pump()

    def _pump(self) -> None:
        """Give what is ready to those who wait, and start what is missing."""
        while self._waiters and self._ready and (self._waiters[0].swap or self._granted < self.capacity):
            seat = self._ready.popleft()
            if seat.lost.done():
                self._discard(seat)
                continue
            waiter = self._waiters.popleft()
            self._granted += not waiter.swap
            waiter.seat.set_result(seat)
        at_once = 1 if self._failures else self._cores
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
            seat = await self._seats.make()
        except BenchmaxError as error:
            self._failed(error, began)
            return
        except Exception as error:
            logger.exception("Starting MCP servers failed.")
            self._failed(McpError(f"No MCP server can be started: {type(error).__name__}: {error}."), began)
            return
        self.metrics.starts.add(monotonic() - began)
        self._failures, self._error = 0, None
        if self._closed:
            self._discard(seat)
            return
        self._ready.append(seat)
        seat.lost.add_done_callback(lambda _: self._died_ready(seat))

    def _failed(self, error: BenchmaxError, began: float) -> None:
        self.metrics.start_failures += 1
        if not self._failures:
            self._failing_since = began
        self._failures += 1
        self._error = error
        pause = retries.pause(self._failures, 0.2, 2.0)
        if self._failures >= limits.MCP_START_TRIES or monotonic() - self._failing_since > HOPELESS_SECONDS:
            pause = REST_SECONDS
            self._failures = limits.MCP_START_TRIES - 1  # one more try after the rest
            self._broken_until = monotonic() + pause
            self._turn_away(self._why())
        self._paused_until = monotonic() + pause
        asyncio.get_running_loop().call_later(pause, self._pump)

    def _turn_away(self, error: BenchmaxError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.seat.done():
                waiter.seat.set_exception(error)

    def _broken(self) -> bool:
        """Whether so many starts failed that for a while nobody is even let to wait."""
        return monotonic() < self._broken_until and self._error is not None

    def _why(self) -> BenchmaxError:
        return McpError(
            f"The MCP servers cannot be started. {self._error}\n"
            f"Correct the server. The next start is tried in {REST_SECONDS:g} s."
        )

    # Loss

    def _died_ready(self, seat: Seat) -> None:
        if seat in self._ready:
            self._ready.remove(seat)
            self.metrics.crashes += 1
            logger.warning("A spare was lost. %s", seat.lost.result())
            self._discard(seat)
            self._pump()

    def _watch(self, lease: Lease) -> None:
        seat = lease.seat

        def lost(words: asyncio.Future[str]) -> None:
            if lease.seat is seat and lease.token in self._leases:
                self.metrics.crashes += 1
                if lease.on_lost is not None:
                    lease.on_lost(lease.token, words.result())

        seat.lost.add_done_callback(lost)

    def _discard(self, seat: Seat) -> None:
        task = asyncio.ensure_future(seat.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _look_after(self) -> None:
        """End what nobody has used for long, and what no longer answers."""
        while True:
            await asyncio.sleep(min(10.0, self._idle_seconds / 4))
            target, now = self._target(), monotonic()
            while self._ready and self._live() > target and now - self._ready[0].since > self._idle_seconds:
                self._discard(self._ready.popleft())
                self.metrics.reaped += 1
            for seat in [seat for seat in self._ready if now - seat.since > STALE_SECONDS]:
                if not await seat.healthy(PING_SECONDS) and seat in self._ready:
                    self._ready.remove(seat)
                    self.metrics.crashes += 1
                    self._discard(seat)
            self._pump()

    def state(self) -> dict[str, Any]:
        """Numbers for people who watch."""
        return {
            "capacity": self.capacity, "leased": len(self._leases), "ready": len(self._ready),
            "starting": len(self._starting), "waiting": len(self._waiters), "left_out": dict(self._seats.left_out),
            **self.metrics.told(),
        }  # fmt: skip

    def pids(self) -> list[int]:
        return [pid for seat in [*self._ready, *(lease.seat for lease in self._leases.values())] for pid in seat.pids]

    async def close(self) -> None:
        self._closed = True
        self._keeper.cancel()
        self._turn_away(McpError("The MCP servers were shut down. Open the environment again."))
        for task in list(self._starting):
            task.cancel()
        for seat in [*self._ready, *(lease.seat for lease in self._leases.values())]:
            self._discard(seat)
        self._ready.clear()
        self._leases.clear()
        pending = [*self._starting, *self._stopping]
        if pending:
            await asyncio.wait(pending, timeout=4.0)
