"""Ends live streams whose reader may no longer read: the key was revoked, the session closed, the run unpublished.

Readers with the same credentials of the same run share one look at the database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from starlette.concurrency import run_in_threadpool

RECHECK_SECONDS = 2.0
_KEPT = 1000


class StreamWatch:
    def __init__(self) -> None:
        self._looks: dict[Hashable, tuple[float, asyncio.Task[bool]]] = {}

    async def until_refused(self, who: Hashable, may_read: Callable[[], bool], bound: asyncio.Timeout) -> None:
        """Cut the block of `bound` off once `may_read` says no."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            if not await asyncio.shield(self._look(who, may_read)):
                bound.reschedule(0.0)
                return

    def _look(self, who: Hashable, may_read: Callable[[], bool]) -> asyncio.Task[bool]:
        now = time.monotonic()
        began, task = self._looks.get(who, (0.0, None))
        if task is None or began < now - RECHECK_SECONDS / 2:
            if len(self._looks) >= _KEPT:
                self._looks = {key: look for key, look in self._looks.items() if look[0] > now - RECHECK_SECONDS}
            task = asyncio.create_task(run_in_threadpool(may_read))
            self._looks[who] = (now, task)
        return task
