"""Work handed to an event loop from other threads: many posts, few wake-ups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Postbox:
    """Callbacks for one loop. A sender that is itself a loop wakes it once, at the end of its own turn.

    Waking a thread makes it ask for the interpreter lock; done for every call, two threads would do little else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posts: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._awake = False
        self._senders: set[asyncio.AbstractEventLoop] = set()

    def post(self, sender: asyncio.AbstractEventLoop | None, callback: Callable[..., Any], *args: Any) -> None:
        """Run a callback on the loop; `sender` is the running loop of the posting thread, if it has one."""
        self._posts.append((callback, args))
        if sender is None:
            self._wake()
        elif not self._awake and sender not in self._senders:
            self._senders.add(sender)
            sender.call_soon(self._wake_for, sender)

    def _wake_for(self, sender: asyncio.AbstractEventLoop) -> None:
        self._senders.discard(sender)
        self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._posts.clear()

    def _drain(self) -> None:
        self._awake = False
        for _ in range(len(self._posts)):
            callback, args = self._posts.popleft()
            callback(*args)
