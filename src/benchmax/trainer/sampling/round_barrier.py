"""A barrier between turns: on a CPU the turns of all rollouts start in rounds, together and in a fixed order.

The engine's batches, and with them the last bits of every log-prob, are then the same whenever a step is sampled again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

from benchmax.envs.types import ChatMessage, ToolDefinition
from benchmax.inference.engine.engine import Engine
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling

LATE_SECONDS = 2.0
"""How long a round waits for rollouts between two turns; one that is not ready by then starts when it is."""
POLLS = 40
"""The wait is made of so many pieces: for a process that was suspended or starved, only one of them has passed."""

Place = tuple[int, int]
"""A rollout's place in the order: its example's number and its seed."""


class RoundBarrier:
    """Starts turns in rounds: when every rollout waits at the barrier, all go to the idle engine in a fixed order.

    A rollout that takes too long between two turns is not waited for; it starts when it arrives.
    """

    def __init__(self, engine: Engine, members: int) -> None:
        self._engine = engine
        self._members = members
        """Rollouts that have further turns; with none of them there is no barrier."""
        self._waiting: dict[Place, asyncio.Future[None]] = {}
        self._running: set[Place] = set()
        self._last_round: set[Place] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._released = threading.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._released.set()
        if self._opening is not None:
            await self._opening

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """Wait for the round, then take part in it for the time of the block."""
        try:
            if self._members:
                await self._wait(place)
            yield
        finally:
            self._running.discard(place)
            self._check()

    def leave(self, count: int = 1) -> None:
        """Rollouts have had their last turn."""
        self._members = max(0, self._members - count)
        self._check()

    @contextmanager
    def group(self, model: ModelClient, size: int, index: int) -> Iterator[ModelClient]:
        """A model for so many siblings, whose turns wait here."""
        waiting = BarrierModel(model, index, self)
        yield waiting
        self.leave(size - waiting.opened)  # those that failed before their first turn

    async def _wait(self, place: Place) -> None:
        if self._running and place not in self._last_round:
            self._running.add(place)  # it missed this round
            return
        self._waiting[place] = asyncio.get_running_loop().create_future()
        self._check()
        try:
            await self._waiting[place]
        finally:
            self._waiting.pop(place, None)

    def _check(self) -> None:
        """Begin a round if none runs and all rollouts wait; if only some do, begin it a little later."""
        if self._running or self._opening is not None or not self._waiting:
            return
        if len(self._waiting) >= self._members:
            self._open()
        elif self._timer is None:
            self._poll(POLLS)

    def _poll(self, left: int) -> None:
        if left:
            self._timer = asyncio.get_running_loop().call_later(LATE_SECONDS / POLLS, self._poll, left - 1)
        else:
            self._open()

    def _open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._opening is None and self._waiting and not self._running:
            self._opening = asyncio.create_task(self._start_round())

    async def _start_round(self) -> None:
        """Hold the engine until the turns of all waiting rollouts are in its queue."""
        loop, holding = asyncio.get_running_loop(), asyncio.Event()
        self._released.clear()

        def hold() -> None:
            loop.call_soon_threadsafe(holding.set)
            self._released.wait()

        held = loop.run_in_executor(None, self._engine.call, hold)
        at_hold = asyncio.ensure_future(holding.wait())
        both: list[asyncio.Future[Any]] = [held, at_hold]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        at_hold.cancel()
        self._last_round = {place for place, future in self._waiting.items() if not future.done()}
        self._running |= self._last_round
        for place in sorted(self._last_round):
            self._waiting[place].set_result(None)
        # Runs after the tasks woken above: each submits its turn to the engine before it waits again.
        loop.call_soon(self._released.set)
        await asyncio.wait([held])
        if not held.cancelled():
            held.exception()  # a closed engine raises in the turns themselves
        self._opening = None
        self._check()


class BarrierModel(ModelClient):
    """A model whose turns wait at the barrier; the seeds of conversations, which never change, give the order."""

    def __init__(self, model: ModelClient, index: int, barrier: RoundBarrier) -> None:
        self.name = model.name
        self._model, self._index, self._barrier = model, index, barrier
        self.opened = 0
        """Conversations so far; each leaves the barrier when it closes."""

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        self.opened += 1
        place = (self._index, sampling.seed or 0)
        return _BarrierConversation(self._model.converse(tools=tools, sampling=sampling), self._barrier, place)


class _BarrierConversation(Conversation):
    def __init__(self, conversation: Conversation, barrier: RoundBarrier, place: Place) -> None:
        self._conversation, self._barrier, self._place = conversation, barrier, place

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        async with self._barrier.turn(self._place):
            return await self._conversation.reply(new, max_tokens=max_tokens)

    async def aclose(self) -> None:
        self._barrier.leave()
        await self._conversation.aclose()
