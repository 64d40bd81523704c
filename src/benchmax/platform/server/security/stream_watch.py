"""Ends live streams whose reader may no longer read: the key was revoked, the login ended, the run unpublished.

Readers with the same credentials of the same run share one watch, and it asks the database once for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from starlette.concurrency import run_in_threadpool

RECHECK_SECONDS = 2.0


class StreamWatch:
    def __init__(self) -> None:
        self._open: dict[Hashable, set[asyncio.Timeout]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def watching(self, who: Hashable, may_read: Callable[[], bool], bound: asyncio.Timeout) -> Iterator[None]:
        """While this block lasts, expire `bound` once `may_read` returns False."""
        streams = self._open.setdefault(who, set())
        streams.add(bound)
        if len(streams) == 1:
            task = asyncio.create_task(self._watch(who, streams, may_read))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            yield
        finally:
            streams.discard(bound)
            if not streams:
                self._forget(who, streams)

    async def _watch(self, who: Hashable, streams: set[asyncio.Timeout], may_read: Callable[[], bool]) -> None:
        while streams:
            await asyncio.sleep(RECHECK_SECONDS)
            if streams and not await run_in_threadpool(may_read):
                self._forget(who, streams)
                for bound in streams:
                    bound.reschedule(0.0)
                return

    def _forget(self, who: Hashable, streams: set[asyncio.Timeout]) -> None:
        """Stop watching these streams; later ones are watched separately."""
        if self._open.get(who) is streams:
            del self._open[who]
