"""`deadline(seconds)`: asyncio.timeout for thousands of waits at once, at the price of a dict entry each.

Waits of the same length expire in the order they began. So all of them share one timer of the loop, which is
set for the oldest; a wait that ends in time, as nearly all do, leaves a dict and touches no timer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import Protocol, Self


class Wait(Protocol):
    """Something that may not take longer than its deadline."""

    def expire(self) -> None:
        """Called when the deadline passes."""


class SharedTimer:
    """The deadlines of all waits of one length, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._due: dict[Wait, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, wait: Wait) -> None:
        due = self._loop.time() + self._seconds
        self._due[wait] = due
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._expire_due)

    def discard(self, wait: Wait) -> None:
        self._due.pop(wait, None)

    def _expire_due(self) -> None:
        self._timer = None
        now = self._loop.time() + 1e-6
        for wait, due in list(self._due.items()):
            if due > now:
                self._timer = self._loop.call_at(due, self._expire_due)
                return
            del self._due[wait]
            wait.expire()


class _ThreadTimers(threading.local):
    """The timers of the loop that runs in this thread, by their length."""

    loop: asyncio.AbstractEventLoop | None = None
    by_seconds: dict[float, SharedTimer]


_timers = _ThreadTimers()


def shared_timer(seconds: float) -> SharedTimer:
    """The running loop's timer of this length."""
    loop = asyncio.get_running_loop()
    if _timers.loop is not loop:
        _timers.loop, _timers.by_seconds = loop, {}
    timer = _timers.by_seconds.get(seconds)
    if timer is None:
        timer = _timers.by_seconds[seconds] = SharedTimer(loop, seconds)
    return timer


class deadline:
    """Cancels what runs inside after `seconds`, and raises TimeoutError in its place."""

    __slots__ = ("_cancelling", "_task", "_timer", "expired")

    def __init__(self, seconds: float) -> None:
        self._timer = shared_timer(seconds)
        self.expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a deadline needs a task to cancel"
        self._task = task
        self._cancelling = task.cancelling()
        self._timer.add(self)
        return self

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.discard(self)
        # As asyncio.timeout does: a cancellation by somebody else, meanwhile, takes precedence.
        cancelled_here = self.expired and self._task.uncancel() <= self._cancelling
        if cancelled_here and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


class QueueTime:
    """Time a call spends in a queue for something others hold; it does not count against the call's deadline."""

    __slots__ = ("_queued", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._queued = 0.0

    @property
    def is_queueing(self) -> bool:
        return self._since is not None

    def seconds(self) -> float:
        return self._queued + (monotonic() - since if (since := self._since) is not None else 0.0)

    def begin(self) -> None:
        self._since = monotonic()

    def end(self) -> None:
        self._queued, self._since = self.seconds(), None


current_queue_time: ContextVar[QueueTime | None] = ContextVar("benchmax_queue_time", default=None)
current_hook_seconds: ContextVar[float | None] = ContextVar("benchmax_hook_seconds", default=None)
"""The time limit of the hook that runs, for a hook that waits for others and should give up a little earlier."""


@contextmanager
def queueing() -> Iterator[None]:
    """Wait inside for something that others hold: the deadline of the hook that runs is paused meanwhile."""
    time = current_queue_time.get()
    if time is None:
        yield
        return
    time.begin()
    try:
        yield
    finally:
        time.end()
