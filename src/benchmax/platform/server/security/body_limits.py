"""Limits on request bodies: size, speed, and memory of all of them together, checked while they arrive."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from benchmax import limits
from benchmax.files import json_size
from benchmax.platform.server.error_responses import Refused

OPEN_BYTES = 64 * limits.KIB
"""Of a body that needs no credentials, such as that of a sign-in."""
HELD_BYTES = 384 * limits.MIB
"""Of all bodies that are in memory at one time."""
BODY_SECONDS = 120.0
"""For a body that is kept in memory."""
FASTEST_RATE = 64.0 * limits.MIB
FASTEST_FILES = 256.0 * limits.MIB
"""Bytes a second, of all bodies together, those in memory and those that go to the disk: readers must not wait behind
senders."""
BURST_SECONDS = 0.05
SLOWEST_RATE = 1024.0
"""Bytes a second, of a file that is uploaded, after the first minute."""


class BodyBudget:
    """What all requests hold, and how fast it comes."""

    def __init__(self) -> None:
        self.held = 0
        self._taken_until = 0.0

    async def take_turn(self, size: int, rate: float) -> None:
        """Wait as long as the pieces before this one take at the fastest rate; their senders wait meanwhile."""
        now = time.monotonic()
        self._taken_until = max(now, self._taken_until) + size / rate
        if (early := self._taken_until - now - BURST_SECONDS) > 0:
            await asyncio.sleep(early)


class LimitedBody:
    """One request's body, as it is received."""

    def __init__(self, receive: Receive, budget: BodyBudget, *, most: int, stored: bool, idle_seconds: float) -> None:
        self._receive = receive
        self._budget = budget
        self._most = most
        self._idle_seconds = idle_seconds
        self._count = None if stored else json_size.Count()
        self._began = time.monotonic()
        self._taken = 0
        self._complete = False

    async def receive(self) -> Message:
        """The next piece; Refused when it is too much, too slow or too late."""
        if self._complete:
            return await self._receive()  # waits for the end of the connection
        try:
            async with asyncio.timeout(self._seconds_left()):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "The body came too slowly. Send it again.", Connection="close") from None
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        piece = message.get("body", b"")
        self._take(piece)
        await self._budget.take_turn(len(piece), FASTEST_FILES if self._count is None else FASTEST_RATE)
        return message

    def end(self) -> None:
        """Release what it held."""
        if self._count is not None:
            self._budget.held -= self._taken
            self._taken = 0

    def _seconds_left(self) -> float:
        spent = time.monotonic() - self._began
        if self._count is not None:
            return max(0.001, BODY_SECONDS - spent)
        if spent > 60.0 and self._taken < SLOWEST_RATE * (spent - 60.0):
            return 0.001
        return self._idle_seconds

    def _take(self, piece: bytes) -> None:
        self._taken += len(piece)
        if self._count is not None:
            self._budget.held += len(piece)
        if self._taken > self._most:
            raise too_large(self._most)
        if self._count is None:
            return
        if self._count.add(piece):
            raise Refused(413, "The body holds too many values. Send it in parts, or upload a file of JSON lines.")
        if self._budget.held > HELD_BYTES:
            raise Refused(503, "The server is receiving other large bodies. Try again.", Retry_After="5")


def too_large(most: int) -> Refused:
    return Refused(413, f"The body is larger than {most:,} bytes. Send less.")


def is_hang_up(error: BaseException) -> bool:
    """Whether an error only means that the client disconnected."""
    return isinstance(error, ClientDisconnect) or isinstance(error.__cause__ or error.__context__, ClientDisconnect)
