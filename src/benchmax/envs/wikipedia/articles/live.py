"""Articles of a live MediaWiki, over its API, politely.

One request at a time and at most so many a second, however many rollouts there are; `maxlag`, so that a busy wiki is
left alone; a User-Agent that says who asks; a pause that the server asks for is kept; what was asked before is answered
from memory. A wiki that stays busy is an error that the model reads, within the deadline of a tool.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import httpx2

import benchmax
from benchmax import limits
from benchmax.concurrency import PerLoop
from benchmax.envs.wikipedia.articles.base import Found
from benchmax.errors import ToolError, UsageError
from benchmax.retries import BUSY, pause, retry_after
from benchmax.search.sources.plain_text import strip_html, tidy

URL = "https://en.wikipedia.org/w/api.php"
PER_SECOND = 2.0
_EVERY_QUERY = {"action": "query", "format": "json", "formatversion": "2", "maxlag": "5"}
QUERY_CHARS = 300
"""The longest query that Wikipedia's search takes."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 20.0
_BUSY_STATUS = BUSY | {500}
_BUSY_CODES = frozenset({"maxlag", "ratelimited", "readonly", "internal_api_error_DBQueryError"})


class LiveArticles:
    """Asks a MediaWiki. It can be pickled, its keys included: give those as environment variables of a run instead."""

    def __init__(self, keys: Sequence[str] = (), url: str = URL, per_second: float = PER_SECOND) -> None:
        if per_second <= 0:
            raise UsageError(f"per_second is {per_second}; give a number above 0.")
        self._keys, self._url = tuple(keys), url
        self._turn = _Turn(1.0 / per_second)
        self._next_key = itertools.cycle(self._keys)
        self._cache: OrderedDict[tuple[tuple[str, str], ...], dict[str, Any]] = OrderedDict()
        self._connections = PerLoop(_Connection)

    async def search(self, q: str, limit: int) -> list[Found]:
        asked = {"list": "search", "srsearch": q[:QUERY_CHARS], "srlimit": str(limit), "srprop": "snippet"}
        found = (await self._query(asked)).get("search") or []
        snippets = (strip_html(str(each.get("snippet") or "")).content for each in found)
        return [Found(str(each["title"]), " ".join(text.split())) for each, text in zip(found, snippets, strict=True)]

    async def article(self, title: str) -> str | None:
        if any(char in title for char in "|#<>[]{}\n"):  # no title has these, and `|` would ask for several
            return None
        found = await self._query({"prop": "extracts", "explaintext": "1", "redirects": "1", "titles": title})
        pages = found.get("pages") or []
        if not pages or "missing" in pages[0] or "invalid" in pages[0]:
            return None
        return tidy(str(pages[0].get("extract") or ""))

    async def close(self) -> None:
        held = self._connections.pop()
        if held is not None:
            await held.client.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._keys, self._url, 1.0 / self._turn.apart)

    # Inside

    async def _query(self, asked: dict[str, str]) -> dict[str, Any]:
        """What the API says of a query; remembered."""
        key = tuple(sorted(asked.items()))
        connection = self._connections.get()
        if (known := self._cache.get(key)) is not None:
            return known
        async with connection.one_at_a_time:
            known = self._cache.get(key)  # it was asked while this one waited
            if known is None:
                known = await self._answer(connection.client, asked)
                self._cache[key] = known
                if len(self._cache) > limits.WIKIPEDIA_CACHED:
                    self._cache.popitem(last=False)
        return known

    async def _answer(self, client: httpx2.AsyncClient, asked: dict[str, str]) -> dict[str, Any]:
        deadline, problem = time.monotonic() + limits.WIKIPEDIA_LIVE_WAIT, "it does not answer"
        for attempt in range(1, limits.WIKIPEDIA_LIVE_TRIES + 1):
            await asyncio.sleep(self._turn.wait())
            wanted: float | None = None
            keyed = {"Authorization": f"Bearer {next(self._next_key)}"} if self._keys else {}
            try:
                response = await client.get(self._url, params=_EVERY_QUERY | asked, headers=keyed)
            except httpx2.TransportError as error:
                problem = type(error).__name__
            else:
                body, busy = _read(response)
                if busy is None:
                    return body
                problem, wanted = busy, retry_after(response.headers)
            rest = pause(attempt, _FIRST_PAUSE, _LONGEST_PAUSE, wanted)
            if attempt == limits.WIKIPEDIA_LIVE_TRIES or time.monotonic() + rest > deadline:
                break
            await asyncio.sleep(rest)
        raise ToolError(f"Wikipedia is busy ({problem}). Try again later.")


class _Connection:
    """What belongs to one event loop."""

    def __init__(self) -> None:
        agent = f"benchmax/{benchmax.__version__} (environment for reinforcement learning; python-httpx2)"
        self.client = httpx2.AsyncClient(
            timeout=limits.WIKIPEDIA_LIVE_SECONDS, headers={"User-Agent": agent}, follow_redirects=False
        )
        self.one_at_a_time = asyncio.Lock()


class _Turn:
    """Hands out moments, at least `apart` seconds from one another, to any thread."""

    def __init__(self, apart: float) -> None:
        self.apart = apart
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> float:
        """Seconds until the caller's moment."""
        with self._lock:
            now = time.monotonic()
            moment = max(now, self._next)
            self._next = moment + self.apart
        return moment - now


def _read(response: httpx2.Response) -> tuple[dict[str, Any], str | None]:
    """The answer; or why to ask again. Raises ToolError for a refusal that asking again does not mend."""
    if response.status_code in _BUSY_STATUS:
        return {}, f"HTTP {response.status_code}"
    try:
        body = response.json()
    except ValueError:
        return {}, "its answer is no JSON"
    error = body.get("error") if isinstance(body, dict) else {"info": "its answer is no object"}
    if isinstance(error, dict) and error.get("code") in _BUSY_CODES:
        return {}, str(error["code"])
    if error or response.is_error:
        said = error.get("info") if isinstance(error, dict) else error
        raise ToolError(f"Wikipedia refuses this: {str(said or f'HTTP {response.status_code}')[:200]}")
    return body.get("query") or {}, None
