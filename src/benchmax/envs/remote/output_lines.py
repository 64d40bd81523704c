"""What a child process prints, as lines of bounded length."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from benchmax import limits
from benchmax.cross_loop import settle

TAIL_LINES = 20


class OutputLines(asyncio.Protocol):
    """Keeps the last lines of a pipe; `on_line` is called with each."""

    def __init__(self, on_line: Callable[[str], None] | None = None, lines: deque[str] | None = None) -> None:
        self.lines: deque[str] = lines if lines is not None else deque(maxlen=TAIL_LINES)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_line = on_line
        self._rest = b""
        self._transport: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: limits.LOG_LINE_CHARS]
        for line in lines if self._on_line is not None else lines[-TAIL_LINES:]:
            self._add(line)

    def _add(self, line: bytes) -> None:
        text = line[: limits.LOG_LINE_CHARS].decode("utf-8", "replace").rstrip("\r")
        self.lines.append(text)
        if self._on_line is not None:
            self._on_line(text)

    def connection_lost(self, error: Exception | None) -> None:
        if self._rest:
            self._add(self._rest)
        settle(self.closed, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
