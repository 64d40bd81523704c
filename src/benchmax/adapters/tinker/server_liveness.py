"""Whether the server still answers. The `tinker` package waits for a result for hours, and for ever where one is due.

Work goes to a thread of its own; as long as it is under way, the server is asked for a sign of life every few seconds.
Any answer over HTTP is one. A server that gives none for `REMOTE_SILENCE_SECONDS` is gone, and with it the work.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

from benchmax import limits
from benchmax.concurrency import start_thread
from benchmax.errors import ModelUnavailable

T = TypeVar("T")
CHECK_SECONDS = 10.0
"""Between two questions, and the most that one of them may take."""


class ServerLiveness:
    """Waits for a server's results, but not for those of a server that is gone."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}/api/v1/healthz"
        self._lock = threading.Lock()
        self._asked = self._answered = 0.0

    def wait(self, work: Callable[[], T]) -> T:
        """The result of `work`, which blocks; ModelUnavailable when the server is gone."""
        result, began = start_thread(work, "benchmax-tinker"), monotonic()
        while True:
            try:
                return result.result(CHECK_SECONDS)
            except TimeoutError:
                if result.done():  # the work's own
                    raise
                self.check(began)

    async def wait_async(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for a coroutine."""
        task = asyncio.ensure_future(work)
        began = monotonic()
        try:
            while not (await asyncio.wait([task], timeout=CHECK_SECONDS))[0]:
                await asyncio.to_thread(self.check, began)
            return task.result()
        finally:
            task.cancel()

    def check(self, since: float) -> None:
        """Ask, once for all who wait; raises ModelUnavailable after too much silence since then."""
        with self._lock:
            if monotonic() - self._asked >= CHECK_SECONDS / 2:
                if self.answers():
                    self._answered = monotonic()
                self._asked = monotonic()
            silent = monotonic() - max(since, self._answered)
        if silent > limits.REMOTE_SILENCE_SECONDS:
            raise ModelUnavailable(
                f"Tinker's server has not answered for {silent:.0f} s. Resume the run when it answers again."
            )

    def answers(self) -> bool:
        """Whether there is a server right now."""
        try:
            with urllib.request.urlopen(self._url, timeout=CHECK_SECONDS):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
