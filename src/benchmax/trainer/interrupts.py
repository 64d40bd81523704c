"""Stopping a run cleanly: work under way gets a grace period, then it is abandoned.

Updates run in a thread of their own, which cannot be stopped half-way: they poll `giving_up` where they can.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from benchmax.concurrency import stop_signals
from benchmax.trainer.learning.learner import Aborted

GRACE_SECONDS = 10.0
"""How long a step under way may go on after the first Ctrl-C."""
POLL_SECONDS = 0.2


class Interrupts:
    """Whether a run is to stop, and what it still does until then."""

    def __init__(self, on_stopping: Callable[[float], None], grace: float | None = None) -> None:
        self.stopped = False
        self._on_stopping = on_stopping
        self._grace = grace
        self._give_up = False
        # One thread of its own: the event loop stays free while the update computes.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="benchmax-update")

    def stop(self) -> None:
        """Finish the work under way if that is quick, and end."""
        self.stopped = True

    def giving_up(self) -> bool:
        """Whether work under way is to be abandoned."""
        return self._give_up

    async def unless_stopped(self, work: Any) -> bool:
        """Do the work; after an interrupt it has a grace period, then it is abandoned. True when it was done."""
        task = asyncio.ensure_future(work)
        try:
            await self._done_or_abandoned(task)
        except BaseException:  # this call is cancelled itself: the work must not go on without it
            self._give_up = True
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled() or isinstance(task.exception(), Aborted):
            return False
        task.result()
        return True

    async def _done_or_abandoned(self, task: asyncio.Future[Any]) -> None:
        while not task.done():
            await asyncio.wait([task], timeout=POLL_SECONDS)
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

        The cancellation is swallowed here; `unless_stopped`, around all callers, passes it on.
        """
        future = asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            return future.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


@contextmanager
def handle_signals(interrupt: Callable[[], None], on_kill: Callable[[], None]) -> Iterator[None]:
    """The first of `stop_signals` calls `interrupt`; the second calls `on_kill` and exits."""
    asked: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if asked:
            on_kill()
            os._exit(130)
        asked.append(number)
        with suppress(OSError):  # written at once: whatever computes now may take a while to notice
            os.write(2, b"\nStopping when the work under way allows it. Ctrl-C again stops at once.\n")
        interrupt()

    try:
        before = {number: signal.signal(number, on_signal) for number in stop_signals()}
    except ValueError:  # not the main thread: whoever runs the trainer handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
