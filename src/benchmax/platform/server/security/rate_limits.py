"""How often one caller may do one thing, and how many at the same time."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from benchmax.platform.server.error_responses import Refused


class ConcurrencyLimit:
    """Limits how many things one caller does at the same time, in one event loop."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    @contextmanager
    def hold(self, who: str, most: int, words: str, seconds: int) -> Iterator[None]:
        """Count one thing for as long as the block lasts; Refused (429), for some seconds, when there are `most`."""
        if self._taken[who] >= most:
            raise Refused(429, words, Retry_After=str(seconds))
        self._taken[who] += 1
        try:
            yield
        finally:
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]


class Limiter:
    """Counts calls in memory: a restart forgets them."""

    def __init__(self, per_hour: dict[str, int]) -> None:
        self._per_hour = per_hour
        self._hits: dict[tuple[str, str], deque[float]] = {}
        self._lock = threading.Lock()

    def hit(self, what: str, who: str) -> None:
        """Count one call; Refused (429) when it is one too many in this minute or hour."""
        hour = self._per_hour[what]
        minute = max(10, hour // 60)
        with self._lock:
            now = time.monotonic()
            if len(self._hits) > 10_000:
                self._hits = {key: hits for key, hits in self._hits.items() if hits and hits[-1] > now - 3600}
            hits = self._hits.setdefault((what, who), deque())
            while hits and hits[0] <= now - 3600:
                hits.popleft()
            waits = [3600 - (now - hits[-hour])] if len(hits) >= hour else []
            if len(hits) >= minute and hits[-minute] > now - 60:
                waits.append(60 - (now - hits[-minute]))
            if waits:
                seconds = int(max(waits)) + 1
                raise Refused(429, f"Too many calls. Try again in {seconds} s.", Retry_After=str(seconds))
            hits.append(now)
