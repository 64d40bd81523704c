"""A corpus of the platform, searched over HTTP.

It holds an address, never a key: that is read from the environment at each call, so an environment that carries a
`PlatformCorpus` can be pickled and uploaded.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from benchmax import config, limits
from benchmax.concurrency import PerLoop
from benchmax.errors import NotFoundError, ToolError, UsageError
from benchmax.retries import BUSY, pause, retry_after
from benchmax.search.types import LEXICAL, Document, Hit

if TYPE_CHECKING:
    import httpx2

_BUSY = BUSY | {500}


class PlatformCorpus:
    """Searches the corpus of this name or id. Any number of calls may run at once, on any event loop."""

    def __init__(self, corpus: str, base_url: str | None = None) -> None:
        if not corpus.strip():
            raise UsageError("A corpus of the platform has a name. Write platform:NAME.")
        self.corpus = corpus.strip()
        self.base_url = base_url.rstrip("/") if base_url else None
        self._clients = PerLoop(_open_client)
        self._id: str | None = None

    async def search(self, query: str, limit: int = 10, *, mode: str = LEXICAL, filters: Any = None) -> list[Hit]:
        """The chunks that hold words of the query, best first."""
        if mode != LEXICAL:
            raise UsageError(f"Corpora of the platform know the mode 'lexical', not {mode!r}. Leave it out.")
        asked = {"query": query, "limit": max(1, min(limit, 100)), "filters": filters}
        path = f"/v1/corpora/{await self._corpus_id()}/search"
        found = await self._ask("POST", path, {key: value for key, value in asked.items() if value is not None})
        return [_hit(each) for each in found["results"]]

    def available_modes(self) -> list[str]:
        return [LEXICAL]

    def embed(self, text: str) -> None:
        """Nothing: words are compared, not vectors."""

    def get_params(self) -> dict[str, Any]:
        return {"corpus": self.corpus, "base_url": self.base_url}

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop()
        if client is not None:
            await client.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.corpus, self.base_url)

    async def _corpus_id(self) -> str:
        if self._id is None:
            mine = await self._ask("GET", "/v1/corpora")
            found = [each["id"] for each in mine if self.corpus in (each["id"], each["name"])]
            if not found:
                names = ", ".join(each["name"] for each in mine) or "none"
                raise NotFoundError(f"The platform has no corpus {self.corpus!r} of yours. There are: {names}.")
            self._id = found[0]
        return self._id

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        url = f"{self.base_url or config.platform_url()}{path}"
        for attempt in range(1, limits.CORPUS_TRIES + 1):
            response = await self._try(method, url, body)
            if response is not None and response.status_code not in _BUSY:
                return _read(response)
            if attempt < limits.CORPUS_TRIES:
                asked = retry_after(response.headers) if response is not None else None
                await asyncio.sleep(min(pause(attempt, 0.2, 3.0, asked), limits.CORPUS_SECONDS))
        raise ToolError(f"The platform at {url.partition('/v1/')[0]} does not answer. Start it: benchmax up")

    async def _try(self, method: str, url: str, body: Any) -> httpx2.Response | None:
        import httpx2

        token = config.platform_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return await self._clients.get().request(method, url, json=body, headers=headers)
        except httpx2.TransportError:
            return None


def _open_client() -> httpx2.AsyncClient:
    import httpx2  # every environment's process imports this module, and few of them search a corpus

    return httpx2.AsyncClient(timeout=limits.CORPUS_SECONDS)


def _read(response: httpx2.Response) -> Any:
    if response.status_code in (401, 403):
        raise UsageError("The platform does not accept the key for its corpora. Set BENCHMAX_API_KEY to one of yours.")
    if response.is_error:
        raise ToolError(f"The platform refused the search ({response.status_code}): {response.text[:300]}")
    return response.json()


def _hit(found: dict[str, Any]) -> Hit:
    metadata = found.get("metadata") or {}
    title = str(metadata.get("title") or metadata.get("file") or "")
    return Hit(Document(found["id"], title, found["content"], metadata), float(found.get("score") or 0.0))
