"""What a text search takes and returns: documents, hits, and the two ports behind which an index may be anything.

A `SearchClient` answers queries; it is small and can be pickled, so an environment may carry one. A `ChunkSource` also
returns its texts, from which questions are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

LEXICAL = "lexical"
"""The search mode that compares words."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text that can be found: an article, or a passage of one."""

    id: str
    title: str
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that a query found; the better, the higher its score."""

    document: Document
    score: float

    @property
    def id(self) -> str:
        return self.document.id

    @property
    def title(self) -> str:
        return self.document.title

    @property
    def content(self) -> str:
        return self.document.content


@runtime_checkable
class SearchClient(Protocol):
    """Answers queries. `search` may be async."""

    def search(
        self, query: str, limit: int = 10, *, mode: str = LEXICAL, filters: Any = None
    ) -> Sequence[Hit] | Awaitable[Sequence[Hit]]:
        """The documents that fit the query, best first."""

    def available_modes(self) -> Sequence[str]:
        """`lexical`, and `vector` or `hybrid` where there are embeddings."""

    def embed(self, text: str) -> Sequence[float] | None:
        """The text's vector; None where there are no embeddings."""

    def get_params(self) -> dict[str, Any]:
        """What the client was opened with."""


@runtime_checkable
class ChunkSource(Protocol):
    """Returns texts."""

    def get_chunk_count(self) -> int:
        """How many texts there are."""

    def sample_chunks(self, n: int, min_chars: int = 0, *, seed: int = 0) -> Sequence[Document]:
        """Some of them, drawn by seed, none shorter than `min_chars`."""

    def documents(self) -> Iterator[Document]:
        """All of them."""
