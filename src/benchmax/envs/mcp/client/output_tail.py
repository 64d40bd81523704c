"""The last lines that a process printed, and the limit on how fast it may print."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from benchmax import limits
from benchmax.envs.remote.output_lines import OutputLines

BURST_BYTES, BYTES_PER_SECOND, LINE_BYTES = 4 * limits.MIB, limits.MIB, 256
"""What a server may print that answers no request: at once and in a second. A line counts as LINE_BYTES at least."""
PAUSE_SECONDS = 0.25
"""How long reading pauses when a process prints more."""


class TokenBucket:
    """A rate limit on what a process prints."""

    def __init__(self) -> None:
        self._left, self._at = float(BURST_BYTES), monotonic()

    def spend(self, amount: float) -> bool:
        """Take an amount; returns whether the limit was kept."""
        now = monotonic()
        self._left = min(BURST_BYTES, self._left + (now - self._at) * BYTES_PER_SECOND) - amount
        self._at = now
        return self._left >= 0


class OutputTail(OutputLines):
    """The last lines of a pipe. A process that prints too fast is read slowly, and so has to wait."""

    def __init__(self, on_line: Callable[[str], None] | None = None, lines: deque[str] | None = None) -> None:
        super().__init__(on_line, lines)
        self._limit = TokenBucket()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._limit.spend(len(data) + LINE_BYTES * data.count(b"\n")) and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
