"""Stopping a run cleanly: what is under way gets a moment to end, then it is given up.

A first Ctrl-C asks; the work of the moment may finish within the grace period. Updates run in a thread of their own,
which cannot be stopped half-way: they look at `giving_up` where they can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmax.trainer.learning.learner import Aborted

GRACE_SECONDS = 10.0
"""How long a step in flight may go on after the first Ctrl-C."""
LOOK_SECONDS = 0.2


class Interrupts:
    """Whether one run is to stop, and its work until then."""

    def __init__(self, on_stopping: Callable[[float], None], grace: float | None = None) -> None:
        self.stopped = False
        self._on_stopping = on_stopping
        self._grace = grace
        self._give_up = False
        # One thread of its own: the event loop stays free while the update computes.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="benchmax-update")

    def stop(self) -> None:
        """Finish the work in flight if that is quick, and end."""
        self.stopped = True

    def giving_up(self) -> bool:
        """Whether work under way is to be given up."""
        return self._give_up

    async def unless_stopped(self, work: Any) -> bool:
        """Do the work; after an interrupt it has a grace period, then it is given up. True when it was done."""
        task = asyncio.ensure_future(work)
        try:
            await self._done_or_given_up(task)
        except BaseException:  # we are cancelled ourselves: nothing goes on behind our back
            self._give_up = True
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled() or isinstance(task.exception(), Aborted):
            return False
        task.result()
        return True

    async def _done_or_given_up(self, task: asyncio.Future[Any]) -> None:
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_SECONDS)
            if self.stopped:
                grace = GRACE_SECONDS if self._grace is None else self._grace
                self._on_stopping(grace)
                await asyncio.wait([task], timeout=grace)
                self._give_up = True
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])

    async def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run in the update's thread. It cannot be stopped half-way: when cancelled, work that got done counts.

        The cancellation goes no further; `unless_stopped`, around all that calls this, passes it on.
        """
        future = asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            return future.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
