"""Corpora, their chunks, and search in them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from benchmax.platform.wire.base import JsonObject, PlainText, Time, Wire


class CorpusRequest(Wire):
    name: PlainText = Field(min_length=1, max_length=200)


class CorpusInfo(Wire):
    id: str
    name: str
    chunk_count: int
    created_at: Time
    updated_at: Time
    """When it last got chunks."""


class ChunkBody(Wire):
    id: PlainText | None = Field(default=None, min_length=1, max_length=200)
    content: PlainText = Field(max_length=200_000)
    metadata: JsonObject = Field(default={})


class ChunksRequest(Wire):
    chunks: list[ChunkBody] = Field(max_length=100)


class ChunksAdded(Wire):
    inserted_count: int
    chunk_ids: list[str]


class ChunkInfo(Wire):
    id: str
    content: str
    metadata: dict[str, Any]


class ChunkPage(Wire):
    results: list[ChunkInfo]
    next_cursor: str | None


class SearchRequest(Wire):
    query: str = Field(max_length=10_000)
    limit: int = Field(default=10, ge=1, le=100)
    offset: int = Field(default=0, ge=0, le=10_000)
    metadata: dict[str, Any] | None = None
    filters: dict[str, Any] | list[dict[str, Any]] | None = None
    """`{"and": […]}`, `{"or": […]}`, `{"not": …}`, `{"field", "op", "value"}`, or `{name: value}`."""


class SearchHit(ChunkInfo):
    score: float


class SearchResults(Wire):
    results: list[SearchHit]
    total: int
    query: str
