"""`deadline(seconds)`: asyncio.timeout for thousands of waits at once, at the price of a dict entry each.

Waits of the same length come due in the order they began. So all of them share one timer of the loop, which is
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
    """Something that takes time, and must not take too long."""

    def expire(self) -> None:
        """Its time is over."""


class Deadlines:
    """Waits of one length, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._due: dict[Wait, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, wait: Wait) -> None:
        due = self._loop.time() + self._seconds
        self._due[wait] = due
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._look)

    def discard(self, wait: Wait) -> None:
        self._due.pop(wait, None)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time() + 1e-6
        for wait, due in list(self._due.items()):
            if due > now:
                self._timer = self._loop.call_at(due, self._look)
                return
            del self._due[wait]
            wait.expire()


class _Here(threading.local):
    """The deadlines of the loop that runs in this thread."""

    loop: asyncio.AbstractEventLoop | None = None
    lengths: dict[float, Deadlines]


_here = _Here()


def deadlines(seconds: float) -> Deadlines:
    """Those of the running loop with this length."""
    loop = asyncio.get_running_loop()
    if _here.loop is not loop:
        _here.loop, _here.lengths = loop, {}
    clock = _here.lengths.get(seconds)
    if clock is None:
        clock = _here.lengths[seconds] = Deadlines(loop, seconds)
    return clock


class deadline:
    """Cancel what runs inside after `seconds`, and raise TimeoutError in its place."""

    __slots__ = ("_cancelling", "_clock", "_task", "expired")

    def __init__(self, seconds: float) -> None:
        self._clock = deadlines(seconds)
        self.expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a deadline needs a task to cancel"
        self._task = task
        self._cancelling = task.cancelling()
        self._clock.add(self)
        return self

    def expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.discard(self)
        # As asyncio.timeout does: a cancellation by somebody else, meanwhile, goes before ours.
        ours = self.expired and self._task.uncancel() <= self._cancelling
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


class Turn:
    """Time somebody spends waiting for its turn, which does not count against its deadline."""

    __slots__ = ("_since", "_waited")

    def __init__(self) -> None:
        self._since: float | None = None
        self._waited = 0.0

    @property
    def is_waiting(self) -> bool:
        return self._since is not None

    def waited(self) -> float:
        return self._waited + (monotonic() - since if (since := self._since) is not None else 0.0)

    def begin(self) -> None:
        self._since = monotonic()

    def end(self) -> None:
        self._waited, self._since = self.waited(), None


current_turn: ContextVar[Turn | None] = ContextVar("benchmax_turn", default=None)
current_seconds: ContextVar[float | None] = ContextVar("benchmax_seconds", default=None)
"""How long the hook that runs may take, for one that waits for somebody else and should give up a little earlier."""


@contextmanager
def waiting_for_turn() -> Iterator[None]:
    """Wait inside for something that others hold; a deadline that knows of turns stands still meanwhile."""
    turn = current_turn.get()
    if turn is None:
        yield
        return
    turn.begin()
    try:
        yield
    finally:
        turn.end()
