"""A rollout whose turns an outside loop samples, which sees token ids alone.

The rollout is ours, with its tools, budgets and rewards; its model waits for what comes in from outside.

    begin()           the first prompt's ids
    turn(ids)         what was sampled; the ids of the whole conversation so far, or None when that was the last turn
    score_together()  the siblings' records; none of them is released before
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from benchmax.adapters.engine_model import Ask, Drawn, EngineModel
from benchmax.envs.types import Example
from benchmax.errors import ContextExceeded
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import new_rollout, open_rollout, play
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import score, settle_group
from benchmax.rollouts.settings import RolloutSettings


class TokenRollout:
    """One rollout. Everything here runs on the loop of its environment."""

    def __init__(
        self,
        host: EnvHost,
        example: Example,
        chat: ChatTokens,
        settings: RolloutSettings,
        *,
        name: str,
        sample: int,
        context: int | None = None,
    ) -> None:
        self._host, self._settings = host, settings
        self._model = EngineModel(chat, self._sample, name=name, context=context)
        self.record = new_rollout(host, example, self._model, sample=sample, split="train")
        self._asked: asyncio.Queue[list[int] | None] = asyncio.Queue()
        self._drawn: asyncio.Future[Drawn] | None = None
        self._cut: Termination | None = None
        self.played, self._released = asyncio.Event(), asyncio.Event()
        """Set when it has been played and scored by itself; when it may be released."""
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> list[int] | None:
        """The first prompt; None when the rollout ended before it."""
        self._task = asyncio.create_task(self._run())
        return await self._asked.get()

    async def turn(self, ids: Sequence[int], finish: Literal["stop", "length"]) -> list[int] | None:
        """The next prompt after what was sampled; None when the rollout has ended."""
        if self._drawn is not None and not self._drawn.done():  # its time may be over
            self._drawn.set_result(Drawn(ids, None, finish))
        return await self._asked.get()

    def stop(self, reason: Termination) -> None:
        """No turn will follow, for this reason: what there is will be scored."""
        if self._drawn is not None and not self._drawn.done():
            self._cut = reason
            self._drawn.set_exception(ContextExceeded("The trainer ended this rollout. Raise its limits."))

    async def close(self) -> None:
        """Release it; one that is still being played is given up."""
        self._released.set()
        if self._task is None:
            return
        if not self.played.is_set():
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self, ask: Ask) -> Drawn:
        self._drawn = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(ask.prompt)
        return await self._drawn

    async def _run(self) -> None:
        host, record, settings = self._host, self.record, self._settings
        try:
            async with open_rollout(host, record, settings) as ready:
                if ready:
                    await play(host, record, self._model, settings)
                    record.termination = self._cut or record.termination
                    if record.scorable:
                        await score(host, record, settings)
                self._end()
                if host.overrides("compute_group_reward"):  # which may read its state
                    await self._released.wait()
        finally:
            self._end()

    def _end(self) -> None:
        self.played.set()
        self._asked.put_nowait(None)


async def score_together(host: EnvHost, rollouts: Sequence[TokenRollout], settings: RolloutSettings) -> list[Rollout]:
    """The records of siblings, scored as a group once all have been played, then released."""
    records = [rollout.record for rollout in rollouts]
    try:
        for rollout in rollouts:
            await rollout.played.wait()
        await settle_group(host, records, settings)
    finally:
        for rollout in rollouts:
            await rollout.close()
    return records
