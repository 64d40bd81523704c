"""An engine that generates in batches, in the thread that trains, while rollouts are played on an event loop.

A trainer that is not asynchronous calls us in its own thread and waits. Its model belongs to that thread (devices,
gradient modes, collectives), so generation stays there: rollouts ask from the loop, and what has been asked for by all
of them so far is generated together.

    trainer's thread   play(work) ─┬─ generate([ask, ask, …]) ─┬─ generate([ask, …]) ─ … ─ result
    event loop                     rollouts, tools of all of them at once, rewards
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmax.adapters.engine_model import Ask, Drawn
from benchmax.adapters.env_session import EnvSession
from benchmax.cross_loop import LoopCalls, settle

T = TypeVar("T")
Generate = Callable[[Sequence[Ask]], Sequence[Drawn]]
QUIET_SECONDS = 0.01
"""How long a batch waits for one more ask, unless every rollout in play has asked."""


class _Pending(NamedTuple):
    ask: Ask
    future: asyncio.Future[Drawn]


class BatchedEngine:
    """Gathers what rollouts ask for, and generates it in the thread that calls `play`."""

    def __init__(self, generate: Generate, *, in_play: Callable[[], int] = lambda: 0) -> None:
        self._generate = generate
        self._in_play = in_play
        self._asked: queue.Queue[_Pending | None] = queue.Queue()

    async def sample(self, ask: Ask) -> Drawn:
        """What the engine draws for one turn."""
        pending = _Pending(ask, asyncio.get_running_loop().create_future())
        self._asked.put(pending)
        return await pending.future

    def play(self, session: EnvSession, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the session's loop, and generate here until it is done."""
        running = session.start(work)
        running.add_done_callback(lambda _: self._asked.put(None))
        try:
            while (batch := self._gather()) is not None:
                self._answer(batch)
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def _gather(self) -> list[_Pending] | None:
        """The next batch; None when the work is done."""
        batch: list[_Pending] = []
        try:
            while len(batch) != self._in_play() or not batch:
                pending = self._asked.get(timeout=QUIET_SECONDS if batch else None)
                if pending is None:
                    return None
                batch.append(pending)
        except queue.Empty:
            pass
        return batch

    def _answer(self, batch: Sequence[_Pending]) -> None:
        batch = [pending for pending in batch if not pending.future.cancelled()]
        if not batch:
            return
        answers: list[tuple[Drawn | None, Exception | None]]
        try:
            answers = [(drawn, None) for drawn in self._generate([pending.ask for pending in batch])]
        except Exception as error:
            answers = [(None, error)] * len(batch)
        for pending, answer in zip(batch, answers, strict=True):
            LoopCalls.of(pending.future.get_loop()).schedule(settle, pending.future, *answer)
