"""The last lines that a process printed, and the limit on how fast it may print."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from benchmax import limits

TAIL_LINES = 20
BURST_BYTES, BYTES_PER_SECOND, LINE_BYTES = 4 * limits.MIB, limits.MIB, 256
"""What a server may print that answers no request: at once and in a second. A line counts as LINE_BYTES at least."""
PAUSE_SECONDS = 0.25
"""How long reading pauses when a process prints more."""


class TokenBucket:
    """A rate limit on what a process prints."""

    def __init__(self, burst: float = BURST_BYTES, per_second: float = BYTES_PER_SECOND) -> None:
        self._most, self._per_second = burst, per_second
        self._left, self._at = burst, monotonic()

    def spend(self, amount: float) -> bool:
        """Take an amount; returns whether the limit was kept."""
        now = monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second) - amount
        self._at = now
        return self._left >= 0


class OutputTail(asyncio.Protocol):
    """Keeps the last lines of a pipe. A process that prints too fast is read slowly, and so has to wait."""

    def __init__(self, on_line: Callable[[str], None] | None = None, lines: deque[str] | None = None) -> None:
        self.lines: deque[str] = lines if lines is not None else deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._on_line = on_line
        self._limit = TokenBucket()
        self._transport: asyncio.ReadTransport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: limits.LOG_LINE_CHARS]
        for line in lines if self._on_line is not None else lines[-TAIL_LINES:]:
            self._add(line)
        if not self._limit.spend(len(data) + LINE_BYTES * len(lines)) and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _add(self, line: bytes) -> None:
        text = line[: limits.LOG_LINE_CHARS].decode("utf-8", "replace").rstrip("\r")
        self.lines.append(text)
        if self._on_line is not None:
            self._on_line(text)

    def connection_lost(self, error: Exception | None) -> None:
        if self._rest:
            self._add(self._rest)
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
