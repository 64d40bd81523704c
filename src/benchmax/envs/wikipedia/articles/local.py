"""Articles in an index on this machine."""

from __future__ import annotations

import asyncio

from benchmax.envs.wikipedia.articles.base import Found
from benchmax.search.fts_query import words_of
from benchmax.search.index import Index
from benchmax.search.snippet import snippet

SNIPPET_CHARS = 120


class LocalArticles:
    """Searches an index, in threads: one search takes milliseconds, and other rollouts go on meanwhile."""

    def __init__(self, index: Index) -> None:
        self.index = index

    async def search(self, q: str, limit: int) -> list[Found]:
        return await asyncio.to_thread(self.find, q, limit)

    async def article(self, title: str) -> str | None:
        return await asyncio.to_thread(self.text_of, title)

    async def close(self) -> None:
        self.index.close()

    def find(self, q: str, limit: int) -> list[Found]:
        """The same as `search`, for callers without a loop."""
        words = words_of(q)
        return [
            Found(hit.title, snippet(hit.content, words, SNIPPET_CHARS, title=hit.title))
            for hit in self.index.search(q, limit)
        ]

    def text_of(self, title: str) -> str | None:
        found = self.index.article(title)
        return None if found is None else found.content
