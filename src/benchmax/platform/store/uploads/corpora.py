"""Corpora: named sets of text chunks, searched by words (FTS5 in SQLite, tsvector in PostgreSQL)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, literal_column, select, text, update
from sqlalchemy.orm import Session

from benchmax.platform.store.statements import upsert
from benchmax.platform.store.tables import Chunk, Corpus
from benchmax.search.filters import Predicate
from benchmax.search.fts_query import any_of, words_of

MOST_CORPORA = 20
MOST_CHUNKS = 10_000
_K, _B = 1.2, 0.75
"""The two numbers of BM25, as FTS5 has them."""
_WITH_WORD = text(
    "SELECT chunks.n, length(chunks.content), length(replace(lower(chunks.content), :word, '')) FROM chunks_fts "
    "JOIN chunks ON chunks.n = chunks_fts.rowid WHERE chunks_fts MATCH :match AND chunks.corpus_id = :corpus"
)


def of_owner(db: Session, owner_id: str) -> list[Corpus]:
    return list(db.scalars(select(Corpus).where(Corpus.owner_id == owner_id).order_by(Corpus.created)))


def count(db: Session, corpus_id: str) -> int:
    return db.scalar(select(func.count()).where(Chunk.corpus_id == corpus_id)) or 0


def add(db: Session, corpus_id: str, chunks: Sequence[Mapping[str, Any]]) -> None:
    """Write chunks `{id, content, metadata}`; one with a known id is replaced."""
    rows = {
        chunk["id"]: {
            "corpus_id": corpus_id,
            "id": chunk["id"],
            "content": chunk["content"],
            "metadata": dict(chunk.get("metadata") or {}),
        }
        for chunk in chunks
    }
    upsert(db, Chunk, list(rows.values()), key=("corpus_id", "id"))
    db.execute(update(Corpus).where(Corpus.id == corpus_id).values(updated=time.time()))


def page(db: Session, corpus_id: str, *, limit: int, after: int = 0) -> list[Chunk]:
    query = select(Chunk).where(Chunk.corpus_id == corpus_id, Chunk.n > after)
    return list(db.scalars(query.order_by(Chunk.n).limit(limit)))


def search(
    db: Session, corpus_id: str, query: str, *, limit: int, offset: int, passes: Predicate | None = None
) -> tuple[list[tuple[Chunk, float]], int]:
    """Chunks that hold any of the words, best first, and how many there are; only those whose metadata passes.

    Without a word, all that pass, in the order they came.
    """
    words = words_of(query)
    if words:
        ranked = _ranked_postgres if db.get_bind().dialect.name == "postgresql" else _ranked_sqlite
        scores = ranked(db, corpus_id, words)
    else:
        every = select(Chunk.n).where(Chunk.corpus_id == corpus_id).order_by(Chunk.n)
        scores = [(n, 0.0) for n in db.scalars(every)] if passes else []
    if passes is not None:
        found = db.execute(select(Chunk.n, Chunk.meta).where(Chunk.corpus_id == corpus_id))
        kept = {n for n, metadata in found if passes(metadata)}
        scores = [(n, score) for n, score in scores if n in kept]
    shown = scores[offset : offset + limit]
    rows = {row.n: row for row in db.scalars(select(Chunk).where(Chunk.n.in_([n for n, _ in shown])))}
    return [(rows[n], score) for n, score in shown if n in rows], len(scores)


def _ranked_sqlite(db: Session, corpus_id: str, words: Sequence[str]) -> list[tuple[int, float]]:
    """By BM25 within the corpus. FTS5's own counts how rare a word is among all chunks, those of other users too: from
    its scores one could tell what they hold."""
    size = func.count(), func.avg(func.length(Chunk.content))
    total, average = db.execute(select(*size).where(Chunk.corpus_id == corpus_id)).one()
    scores: dict[int, float] = {}
    for word in words:
        found = db.execute(_WITH_WORD, {"match": any_of([word]), "corpus": corpus_id, "word": word}).all()
        rare = math.log(1.0 + (total - len(found) + 0.5) / (len(found) + 0.5))
        for n, chars, cut in found:
            often = max(1.0, (chars - cut) / len(word))
            length = _K * (1.0 - _B + _B * chars / max(1.0, average))
            scores[n] = scores.get(n, 0.0) + rare * often * (_K + 1.0) / (often + length)
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))


def _ranked_postgres(db: Session, corpus_id: str, words: Sequence[str]) -> list[tuple[int, float]]:
    vector = func.to_tsvector(literal_column("'simple'"), Chunk.content)
    wanted = func.to_tsquery(literal_column("'simple'"), " | ".join(words))
    rank = func.ts_rank(vector, wanted)
    query = select(Chunk.n, rank).where(Chunk.corpus_id == corpus_id, vector.op("@@")(wanted))
    return [(n, float(score)) for n, score in db.execute(query.order_by(rank.desc()).limit(MOST_CHUNKS))]
