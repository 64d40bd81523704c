"""Live feeds. Readers of one run share one poll of the database: a hundred of them cost what one does.

A reader says the last id it saw (`Last-Event-ID`) and gets everything after it, from the table first, then as it comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from benchmax.platform.store.database import Database
from benchmax.platform.store.runs import events, runs
from benchmax.platform.store.tables import TERMINAL, Event

POLL_SECONDS = 0.25
_KEPT = 1000
_PAGE = 500


class _Channel:
    """The newest events of one run, and who waits for more."""

    def __init__(self, since: int) -> None:
        self.since = since
        """Everything after this id is in `tail`."""
        self.last = since
        self.tail: deque[Event] = deque()
        self.ended = False
        self.readers = 0
        self.news = asyncio.Event()

    def add(self, found: list[Event], ended: bool) -> None:
        for event in found:
            self.tail.append(event)
            self.last = event.id
        while len(self.tail) > _KEPT:
            self.since = self.tail.popleft().id
        self.ended = ended and not found
        if found or self.ended:
            self.news.set()
            self.news = asyncio.Event()


class Feeds:
    """All live feeds of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._channels: dict[str, _Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self, run_id: str, last_id: int) -> AsyncIterator[Event]:
        """Every event of a run after `last_id`, until the run has ended and all was told."""
        channel = self._channels.get(run_id) or self._open(run_id, await run_in_threadpool(self.newest, run_id))
        channel.readers += 1
        try:
            while True:
                news, last, ended = channel.news, channel.last, channel.ended
                if last_id < channel.since:
                    found = await run_in_threadpool(self._read, run_id, last_id)
                else:
                    found = [event for event in channel.tail if event.id > last_id]
                for event in found:
                    yield event
                    last_id = event.id
                if last_id >= last or not found:
                    if ended:
                        return
                    await news.wait()
        finally:
            channel.readers -= 1

    async def aclose(self) -> None:
        """End all feeds."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _open(self, run_id: str, newest: int) -> _Channel:
        if run_id not in self._channels:  # another reader may have opened it while this one looked
            self._channels[run_id] = channel = _Channel(newest)
            task = asyncio.create_task(self._poll(run_id, channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return self._channels[run_id]

    async def _poll(self, run_id: str, channel: _Channel) -> None:
        idle = 0
        try:
            while channel.readers or idle < 4:  # a second without readers
                idle = 0 if channel.readers else idle + 1
                try:
                    channel.add(*await run_in_threadpool(self._look, run_id, channel.last))
                except DBAPIError:
                    pass  # the database is away: readers wait
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._channels.pop(run_id, None)
            channel.ended = True
            channel.news.set()

    def newest(self, run_id: str) -> int:
        """The id of a run's last event."""
        with self._database.read() as session:
            return events.last_id(session, run_id)

    def _read(self, run_id: str, last_id: int) -> list[Event]:
        with self._database.read() as session:
            return events.after(session, run_id, last_id, _PAGE)

    def _look(self, run_id: str, last_id: int) -> tuple[list[Event], bool]:
        """What is new, and whether the run has ended: asked first, so that no event after it is missed."""
        with self._database.read() as session:
            run = runs.get(session, run_id)
            return events.after(session, run_id, last_id, _PAGE), run is None or run.status in TERMINAL
