"""Calls into an event loop from other threads and loops: many calls, few wake-ups."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

CALLS_PER_ITERATION = 64
"""Callbacks run in one iteration of a loop, so that a long queue does not block it."""


class LoopCalls:
    """`call_soon_threadsafe` for many calls: any number of them wake the loop once. It does not keep the loop alive."""

    __slots__ = ("_awake", "_loop", "_queue", "_senders")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._queue: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._awake = False
        self._senders: set[asyncio.AbstractEventLoop] = set()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopCalls:
        """The one that all callers of a loop share."""
        if (last := getattr(_last, "calls", None)) is None or last._loop() is not loop:
            last = _last.calls = _of_loops.get(loop) or _of_loops.setdefault(loop, cls(loop))
        return last

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run the callback on the loop soon; from any thread."""
        self._queue.append((callback, args))
        self._wake()

    def schedule_from(self, sender: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> None:
        """The same from a running loop, which wakes this one at the end of its iteration.

        A wake-up hands over the interpreter lock: one for each call would make two threads of one program
        spend their time on taking turns.
        """
        self._queue.append((callback, args))
        if not self._awake and sender not in self._senders:
            self._senders.add(sender)
            sender.call_soon(self._wake_for, sender)

    def _wake_for(self, sender: asyncio.AbstractEventLoop) -> None:
        self._senders.discard(sender)
        self._wake()

    def _wake(self) -> None:
        if self._awake:
            return
        self._awake = True
        loop = self._loop()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._drain)
                return
            except RuntimeError:  # it was closed
                pass
        self._queue.clear()  # nobody waits any more
        self._awake = False

    def _drain(self) -> None:
        self._awake = False
        try:
            for _ in range(min(len(self._queue), CALLS_PER_ITERATION)):
                callback, args = self._queue.popleft()
                callback(*args)
        finally:  # a callback that raises must not stop the others
            if self._queue and not self._awake:
                self._awake = True
                asyncio.get_running_loop().call_soon(self._drain)


_last = threading.local()
"""What a thread asked for last: nearly always the same again, and a weak dictionary is slow."""
_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls] = weakref.WeakKeyDictionary()


def settle(
    future: asyncio.Future[Any] | concurrent.futures.Future[Any], value: Any, error: BaseException | None = None
) -> None:
    """Give a future its value, or its error if there is one, unless nobody waits for it any more."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
