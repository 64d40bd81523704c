"""Searching an index: BM25 by SQLite's FTS5, in milliseconds also for words that every text has.

FTS5 scores every document that holds any of the words, so a query with common words would take a tenth of a second on
100,000 articles. Here a query begins with its rarest words and takes as many as a budget of documents to score allows:
a word in a tenth of all texts hardly changes the order. Where all words are common, only the first documents that hold
them are scored. Of the best by BM25, those come first whose titles the query names: for "Australia
coastline" the geography of Australia, not of an island east of Australia. An article whose title is the query is first.

An `Index` is opened at its first use, once in each thread, and can be pickled.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmax.errors import UsageError
from benchmax.search import schema
from benchmax.search.filters import predicate
from benchmax.search.fts_query import any_of, words_of
from benchmax.search.types import LEXICAL, Document, Hit

MOST_HITS = 100
"""Of one search."""
SCORED = 4_000
"""Documents that one search scores, about."""
KNOWN_WORDS = 100_000
"""Words whose frequency is remembered."""
TITLE_WEIGHT = 5.0
FILTERED = 20
"""With filters, this many times as many documents are looked at as are wanted."""

RERANKED = 40
"""Documents that are put in order by their titles at once: so many best by BM25, then the next so many. A longer answer
begins like a shorter one, so that pages fit together."""

_SEARCH = (
    "SELECT found.rowid, d.title, -found.rank FROM ("
    " SELECT rowid, rank FROM words WHERE words MATCH :match AND rowid <= :last"
    f" AND rank MATCH 'bm25({TITLE_WEIGHT}, 1.0)' ORDER BY rank LIMIT :limit"
    ") AS found JOIN documents AS d ON d.n = found.rowid ORDER BY found.rank, d.n"
)
_COUNT = "SELECT count(*), max(rowid) FROM (SELECT rowid FROM words WHERE words MATCH ? LIMIT ?)"
_DOCUMENT = "SELECT id, title, content, metadata FROM documents"
_BY_TITLE = "key = ? ORDER BY n LIMIT 1"


class Index:
    """The documents of one file. Any number of threads may search it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._threads = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._frequency: dict[str, float] = {}

    # The port

    def search(
        self, query: str, limit: int = 10, *, mode: str = LEXICAL, filters: Any = None, offset: int = 0
    ) -> list[Hit]:
        """The documents that hold words of the query, best first."""
        if mode != LEXICAL:
            raise UsageError(f"The index {self.path.name} knows the mode 'lexical', not {mode!r}. Leave it out.")
        limit, offset = max(1, min(limit, MOST_HITS)), max(0, offset)
        words = words_of(query)
        if not words:
            return []
        passes = predicate(filters)
        wanted = offset + limit if passes is None else FILTERED * (offset + limit)
        hits = (hit for hit in self._hits(query, words, wanted) if passes is None or passes(hit.document.metadata))
        return list(islice(hits, offset, offset + limit))

    def available_modes(self) -> list[str]:
        return [LEXICAL]

    def embed(self, text: str) -> None:
        """Nothing: words are compared, not vectors."""

    def get_params(self) -> dict[str, Any]:
        return {"path": str(self.path)}

    # Its documents

    def get(self, document_id: str) -> Document | None:
        return self._find("id = ?", document_id)

    def article(self, title: str) -> Document | None:
        """The document with this title, in any case; redirects are followed once."""
        key = schema.title_key(title)
        if found := self._find(_BY_TITLE, key):
            return found
        redirect = self._rows("SELECT target FROM redirects WHERE key = ?", key)
        return self._find(_BY_TITLE, redirect[0][0]) if redirect else None

    def get_chunk_count(self) -> int:
        return int(self._rows("SELECT count(*) FROM documents")[0][0])

    def sample_chunks(self, n: int, min_chars: int = 0, *, seed: int = 0) -> list[Document]:
        """Documents drawn by seed, none shorter than `min_chars`; the same from the same index."""
        fitting = [row[0] for row in self._rows("SELECT n FROM documents WHERE length(content) >= ?", min_chars)]
        drawn = random.Random(seed).sample(fitting, min(n, len(fitting)))
        return [_document(self._rows(f"{_DOCUMENT} WHERE n = ?", number)[0]) for number in drawn]

    def documents(self) -> Iterator[Document]:
        """All of them, in the order they came."""
        for row in self._connection().execute(f"{_DOCUMENT} ORDER BY n"):
            yield _document(row)

    def close(self) -> None:
        """Close the files; the index may be used again."""
        self._threads = threading.local()
        while self._opened:
            self._opened.pop().close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r})"

    # Inside

    def _hits(self, query: str, words: Sequence[str], limit: int) -> Iterator[Hit]:
        """The article whose title is the query, then the others; each is read only when it is needed."""
        ranked = self._ranked(words, limit)
        called = self.article(query)
        if called is not None:
            yield Hit(called, (ranked[0][1] if ranked else 0.0) + 1.0)
        for number, score in ranked:
            document = _document(self._rows(f"{_DOCUMENT} WHERE n = ?", number)[0])
            if called is None or document.id != called.id:
                yield Hit(document, score)

    def _ranked(self, words: Sequence[str], limit: int) -> list[tuple[int, float]]:
        """Numbers and scores of at least `limit` documents, if there are so many, best first: BM25, up to twice that
        for a title that holds the query."""
        asked, last = self._plan(words)
        if not asked:
            return []
        blocks = -(-limit // RERANKED)
        rows = self._rows(_SEARCH, match=any_of(asked), last=last, limit=blocks * RERANKED)
        scores = [(number, score * (1.0 + _share(title, words))) for number, title, score in rows]
        starts = range(0, len(scores), RERANKED)
        return [each for at in starts for each in sorted(scores[at : at + RERANKED], key=lambda each: -each[1])]

    def _plan(self, words: Sequence[str]) -> tuple[list[str], int]:
        """The words to ask for, and the number of the last document to look at."""
        size = self._size()
        known = sorted(each for word in words if (each := (self._documents_with(word), word))[0] > 0)
        asked, scored = list[str](), 0.0
        for documents, word in known:
            if asked and scored + documents > SCORED:
                break
            asked.append(word)
            scored += documents
        return asked, size if scored <= SCORED else int(size * SCORED / scored) + 1

    def _documents_with(self, word: str) -> float:
        """How many documents hold the word; beyond what is scored at once, an estimate from the first of them."""
        known = self._frequency.get(word)
        if known is not None:
            return known
        [(found, last)] = self._rows(_COUNT, any_of([word]), SCORED + 1)
        count = float(found) if found <= SCORED else self._size() * SCORED / max(1, last)
        if len(self._frequency) < KNOWN_WORDS:
            self._frequency[word] = count
        return count

    def _size(self) -> int:
        return int(self._rows("SELECT coalesce(max(n), 0) FROM documents")[0][0])

    def _find(self, condition: str, value: Any) -> Document | None:
        rows = self._rows(f"{_DOCUMENT} WHERE {condition}", value)
        return _document(rows[0]) if rows else None

    def _rows(self, statement: str, *values: Any, **named: Any) -> list[Any]:
        return self._connection().execute(statement, named or values).fetchall()

    def _connection(self) -> sqlite3.Connection:
        held: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if held is None:
            held = self._threads.connection = self._connect()
            self._opened.append(held)
        return held

    def _connect(self) -> sqlite3.Connection:
        return schema.connect_to_read(self.path)


def open_index(path: str | Path) -> Index:
    """The index in a file; NotFoundError or RecordError, at once, when it cannot be read."""
    index = Index(path)
    index.get_chunk_count()
    return index


def _document(row: Sequence[Any]) -> Document:
    return Document(row[0], row[1], row[2], json.loads(row[3]))


def _share(title: str, words: Sequence[str]) -> float:
    """How many of the words a title holds."""
    named = words_of(title)
    return sum(word in named for word in words) / len(words)
