"""Connections without a request: they get little time, and one address holds only so many of them.

When there are too many, the oldest is closed rather than the newest refused, so a client that sends its request at once
is never held up by one that does not, even from the same address. A new connection is left open for a moment.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from contextlib import suppress
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEADER_SECONDS = 15.0
"""For a request's headers to come whole."""
WAITING_PER_ADDRESS = 128
WAITING = 512
MOST_WAITING = 8192
"""Those that have just come included."""
CHANCE_SECONDS = 2.0
"""In which a new connection is not closed: under a flood its request is read late."""
OPEN_FILES = 65_536
SWITCH_SECONDS = 0.001
"""How long the loop may keep the interpreter from a thread; a read asks for it at each statement."""
LINES_PER_MINUTE = 60


class _Waiting:
    """A server's connections without a request, the oldest first: all, and by address."""

    def __init__(self) -> None:
        self._all: dict[GuardedProtocol, float] = {}
        self._by_address: dict[str, dict[GuardedProtocol, float]] = {}

    def add(self, connection: GuardedProtocol, address: str) -> None:
        now, same = time.monotonic(), self._by_address.setdefault(address, {})
        _make_room(same, WAITING_PER_ADDRESS, now - CHANCE_SECONDS)
        _make_room(self._all, WAITING, now - CHANCE_SECONDS)
        _make_room(self._all, MOST_WAITING, now)
        self._by_address.setdefault(address, {})[connection] = self._all[connection] = now

    def discard(self, connection: GuardedProtocol, address: str) -> None:
        self._all.pop(connection, None)
        same = self._by_address.get(address, {})
        same.pop(connection, None)
        if not same:
            self._by_address.pop(address, None)


def _make_room(waiting: dict[GuardedProtocol, float], most: int, before: float) -> None:
    """Close the oldest of too many, one or two at a time, if they came before that."""
    for oldest in list(islice(waiting, 2)) if len(waiting) >= most else []:
        if waiting[oldest] <= before:
            oldest.drop()


_waiting: WeakKeyDictionary[ServerState, _Waiting] = WeakKeyDictionary()


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 with a bound on the time without a request, and on how many connections are without one."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self._is_idle():
            self._wait()
        super().data_received(data)
        if not self._is_idle():
            self._end_wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._timer is None and self._is_idle() and self.conn.trailing_data[0]:
            self._wait()  # a part of the next request came before this answer ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        _waiting.setdefault(self.server_state, _Waiting()).add(self, self._address())
        self._timer = self.loop.call_later(HEADER_SECONDS, self.drop)

    def _end_wait(self) -> None:
        if (waiting := _waiting.get(self.server_state)) is not None:
            waiting.discard(self, self._address())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def drop(self) -> None:
        """Close a connection without a request."""
        self._end_wait()
        if self._is_idle() and self.transport is not None:
            self.transport.abort()


class LogRateLimit(logging.Filter):
    """Passes a limited number of lines a minute: what any client can provoke must not fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._began, self._count = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._began > 60.0:
            self._began, self._count = now, 0
        self._count += 1
        return self._count <= LINES_PER_MINUTE


def prepare_process() -> None:
    """Room for many connections, quiet about them, and quick turns for those who read from the database."""
    sys.setswitchinterval(SWITCH_SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS allows fewer than the limit it names
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(LogRateLimit())


def options() -> dict[str, Any]:
    """Uvicorn's options for connections."""
    return {"http": GuardedProtocol, "timeout_keep_alive": 5, "h11_max_incomplete_event_size": 64 * 1024}
