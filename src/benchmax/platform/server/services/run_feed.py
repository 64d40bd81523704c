"""Live feeds of runs. Readers of one run share one poll of the database; what it finds is encoded once for all of them.

A reader says the last id it saw (`Last-Event-ID`) and gets everything after it, from the table first, then as it comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from benchmax.net.sse import ALIVE, encoded_event
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.store.database import Database
from benchmax.platform.store.runs import events, runs
from benchmax.platform.store.tables import Event
from benchmax.platform.wire.runs import RunEvent
from benchmax.platform.wire.values import ENDED

POLL_SECONDS = 0.25
ALIVE_SECONDS = 15.0
"""After which readers are sent something, if only a comment."""
CATCHING_UP = 4
"""Readers whose past events are read at the same time: others need the database, too."""
_KEPT = 1000
_PAGE = 500


class EncodedEvent(NamedTuple):
    """An event as it is sent."""

    id: int
    sent: bytes

    @classmethod
    def of(cls, event: Event) -> EncodedEvent:
        text = shape(RunEvent, event).model_dump_json(by_alias=True)
        return cls(event.id, encoded_event(text.encode("utf-8", "replace"), event.id))


class _Channel:
    """The newest events of one run, and the readers that wait for more."""

    def __init__(self, since: int) -> None:
        self.since = since
        """Everything after this id is in `tail`."""
        self.last = since
        self.tail: deque[EncodedEvent] = deque()
        self.ended = False
        self.readers = 0
        self.news = asyncio.Event()

    def add(self, found: list[EncodedEvent], ended: bool) -> None:
        for event in found:
            self.tail.append(event)
            self.last = event.id
        while len(self.tail) > _KEPT:
            self.since = self.tail.popleft().id
        self.ended = ended and not found
        if found or self.ended:
            self.wake()

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class Feeds:
    """All live feeds of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._channels: dict[str, _Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._catching_up = asyncio.Semaphore(CATCHING_UP)

    async def follow(self, run_id: str, last_id: int) -> AsyncGenerator[bytes, None]:
        """Every event of a run after `last_id`, as it is sent, until the run has ended and all was sent."""
        channel = self._channels.get(run_id) or self._open(run_id, await run_in_threadpool(self.newest, run_id))
        channel.readers += 1
        try:
            while True:
                news, last, ended = channel.news, channel.last, channel.ended
                if last_id < channel.since:
                    async with self._catching_up:
                        found = await run_in_threadpool(self._read, run_id, last_id)
                else:
                    found = [each for each in channel.tail if each.id > last_id]
                if found:
                    last_id = found[-1].id
                    yield b"".join(each.sent for each in found)
                if last_id >= last or not found:
                    if ended:
                        return
                    await news.wait()
                    if channel.last <= last_id and not channel.ended:
                        yield ALIVE
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
        idle, woken = 0, time.monotonic()
        try:
            while channel.readers or idle < 4:  # a second without readers
                idle = 0 if channel.readers else idle + 1
                if time.monotonic() - woken > ALIVE_SECONDS:
                    channel.wake()
                    woken = time.monotonic()
                try:
                    channel.add(*await run_in_threadpool(self._look, run_id, channel.last))
                except SQLAlchemyError:
                    pass  # the database cannot be reached, or has no connection left: readers wait
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._channels.pop(run_id, None)
            channel.ended = True
            channel.news.set()

    def newest(self, run_id: str) -> int:
        """The id of a run's last event."""
        with self._database.read() as db:
            return events.last_id(db, run_id)

    def _read(self, run_id: str, last_id: int) -> list[EncodedEvent]:
        with self._database.read() as db:
            return [EncodedEvent.of(each) for each in events.after(db, run_id, last_id, _PAGE)]

    def _look(self, run_id: str, last_id: int) -> tuple[list[EncodedEvent], bool]:
        """What is new, and whether the run has ended; the latter is read first, so that no later event is missed."""
        with self._database.read() as db:
            run = runs.get(db, run_id)
            found = [EncodedEvent.of(each) for each in events.after(db, run_id, last_id, _PAGE)]
            return found, run is None or run.status in ENDED
