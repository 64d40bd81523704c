"""Corpora: named sets of text chunks, searched by words (FTS5 in SQLite, tsvector in PostgreSQL)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, literal_column, select, text
from sqlalchemy.orm import Session

from benchmax.platform.store.points import write_all
from benchmax.platform.store.tables import Chunk, Corpus

MOST_CORPORA = 20
MOST_CHUNKS = 10_000
BATCH = 100
_SCANNED = 2_000


def of_owner(session: Session, owner_id: str) -> list[Corpus]:
    return list(session.scalars(select(Corpus).where(Corpus.owner_id == owner_id).order_by(Corpus.created)))


def get(session: Session, owner_id: str, corpus_id: str) -> Corpus | None:
    row = session.get(Corpus, corpus_id)
    return row if row is not None and row.owner_id == owner_id else None


def count(session: Session, corpus_id: str) -> int:
    return session.scalar(select(func.count()).where(Chunk.corpus_id == corpus_id)) or 0


def add(session: Session, corpus_id: str, chunks: Sequence[Mapping[str, Any]]) -> None:
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
    write_all(session, Chunk, list(rows.values()), key=("corpus_id", "id"))


def page(session: Session, corpus_id: str, *, limit: int, after: int = 0) -> list[Chunk]:
    query = select(Chunk).where(Chunk.corpus_id == corpus_id, Chunk.n > after)
    return list(session.scalars(query.order_by(Chunk.n).limit(limit)))


def search(
    session: Session, corpus_id: str, query: str, *, limit: int, offset: int, metadata: Mapping[str, Any]
) -> tuple[list[tuple[Chunk, float]], int]:
    """Chunks that hold any of the words, best first, and how many there are; only those with all of `metadata`."""
    words = re.findall(r"\w+", query)[:64]
    if not words:
        return [], 0
    ranked = _ranked_postgres if session.get_bind().dialect.name == "postgresql" else _ranked_sqlite
    scores = ranked(session, corpus_id, words)
    rows = {row.n: row for row in session.scalars(select(Chunk).where(Chunk.n.in_([n for n, _ in scores])))}
    hits = [(rows[n], score) for n, score in scores if n in rows]
    kept = [hit for hit in hits if all(hit[0].meta.get(name) == value for name, value in metadata.items())]
    return kept[offset : offset + limit], len(kept)


def _ranked_sqlite(session: Session, corpus_id: str, words: Sequence[str]) -> list[tuple[int, float]]:
    # Each word is quoted: FTS5 has a language of its own.
    match = " OR ".join(f'"{word}"' for word in words)
    statement = text(
        "SELECT chunks_fts.rowid, -bm25(chunks_fts) FROM chunks_fts JOIN chunks ON chunks.n = chunks_fts.rowid "
        "WHERE chunks_fts MATCH :match AND chunks.corpus_id = :corpus ORDER BY bm25(chunks_fts) LIMIT :most"
    )
    found = session.execute(statement, {"match": match, "corpus": corpus_id, "most": _SCANNED})
    return [(n, score) for n, score in found]


def _ranked_postgres(session: Session, corpus_id: str, words: Sequence[str]) -> list[tuple[int, float]]:
    vector = func.to_tsvector(literal_column("'simple'"), Chunk.content)
    wanted = func.to_tsquery(literal_column("'simple'"), " | ".join(words))
    rank = func.ts_rank(vector, wanted)
    query = select(Chunk.n, rank).where(Chunk.corpus_id == corpus_id, vector.op("@@")(wanted))
    return [(n, float(score)) for n, score in session.execute(query.order_by(rank.desc()).limit(_SCANNED))]
