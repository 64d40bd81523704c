"""Corpora: chunks of text to search while training."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.envs.datasets.rows import deeper
from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes.parameters import Cursor, Id, Limit
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router, in_threads
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import Chunk, Corpus
from benchmax.platform.store.uploads import corpora
from benchmax.platform.wire import corpora as wire
from benchmax.platform.wire.base import Success
from benchmax.search.filters import predicate

router = Router(prefix="/v1/corpora", tags=["corpora"])


@router.post("", status_code=201)
def create_corpus(services: Services, caller: Caller, body: wire.CorpusRequest) -> wire.CorpusInfo:
    """A new, empty corpus."""
    with services.database.write() as db:
        mine = corpora.of_owner(db, caller.user_id)
        if any(corpus.name == body.name for corpus in mine):
            raise Refused(409, f"You have a corpus {body.name!r} already. Use it, or choose another name.")
        if len(mine) >= corpora.MOST_CORPORA:
            raise UsageError(f"You have {len(mine)} corpora, the most there can be. Delete one first.")
        corpus = Corpus(owner_id=caller.user_id, name=body.name)
        db.add(corpus)
        db.flush()
        return _info(db, corpus)


@router.get("")
def list_corpora(services: Services, caller: Caller) -> list[wire.CorpusInfo]:
    """Your corpora."""
    with services.database.read() as db:
        return [_info(db, corpus) for corpus in corpora.of_owner(db, caller.user_id)]


@router.get("/{corpus_id}")
def get_corpus(services: Services, caller: Caller, corpus_id: Id) -> wire.CorpusInfo:
    """One of your corpora."""
    with services.database.read() as db:
        return _info(db, _own(db, caller.user_id, corpus_id))


@router.delete("/{corpus_id}")
def delete_corpus(services: Services, caller: Caller, corpus_id: Id) -> Success:
    """Remove a corpus and its chunks."""
    with services.database.write() as db:
        db.delete(_own(db, caller.user_id, corpus_id))
        caller.note(db, "corpus.delete", corpus_id)
    return Success(success=True)


@router.post("/{corpus_id}/chunks")
def add_chunks(services: Services, caller: Caller, corpus_id: Id, body: wire.ChunksRequest) -> wire.ChunksAdded:
    """Add up to 100 chunks; one with a known id is replaced. Without an id, the content is the id."""
    chunks = [
        {"id": chunk.id or hashlib.sha256(chunk.content.encode()).hexdigest(), **chunk.model_dump(exclude={"id"})}
        for chunk in body.chunks
    ]
    with services.database.write() as db:
        _own(db, caller.user_id, corpus_id)
        corpora.add(db, corpus_id, chunks)
        if corpora.count(db, corpus_id) > corpora.MOST_CHUNKS:
            raise UsageError(f"A corpus holds {corpora.MOST_CHUNKS:,} chunks. Put the rest into another one.")
    ids = [str(chunk["id"]) for chunk in chunks]
    return wire.ChunksAdded(inserted_count=len(ids), chunk_ids=ids)


@router.get("/{corpus_id}/chunks")
def list_chunks(
    services: Services, caller: Caller, corpus_id: Id, limit: Limit = 100, cursor: Cursor = 0
) -> wire.ChunkPage:
    """The chunks in the order they came; pass `nextCursor` on for more."""
    with services.database.read() as db:
        _own(db, caller.user_id, corpus_id)
        found = corpora.page(db, corpus_id, limit=limit, after=cursor)
    return wire.ChunkPage(
        results=[wire.ChunkInfo(id=chunk.id, content=chunk.content, metadata=_shown(chunk)) for chunk in found],
        next_cursor=str(found[-1].n) if len(found) == limit else None,
    )


@router.post("/{corpus_id}/search")
@in_threads("reads")
def search(services: Services, caller: Caller, corpus_id: Id, body: wire.SearchRequest) -> wire.SearchResults:
    """Chunks that hold words of the query, best first; `metadata` names values they must have.

    `filters` are `{"and": […]}`, `{"or": […]}`, `{"not": …}` and `{"field", "op", "value"}`, one in the other.
    """
    equal = [{"field": name, "op": "eq", "value": value} for name, value in (body.metadata or {}).items()]
    passes = predicate([*([body.filters] if body.filters else []), *equal])
    with services.database.read() as db:
        _own(db, caller.user_id, corpus_id)
        hits, total = corpora.search(db, corpus_id, body.query, limit=body.limit, offset=body.offset, passes=passes)
    results = [
        wire.SearchHit(id=chunk.id, content=chunk.content, metadata=_shown(chunk), score=score) for chunk, score in hits
    ]
    return wire.SearchResults(results=results, total=total, query=body.query)


def _shown(chunk: Chunk) -> dict[str, Any]:
    """Its metadata; nothing of one that is nested too deep to be sent, which earlier versions took."""
    return {} if deeper(chunk.meta, limits.JSON_DEPTH) else chunk.meta


def _own(db: Session, user_id: str, corpus_id: str) -> Corpus:
    return required(get_if(db, Corpus, corpus_id, owner_id=user_id), "You have no such corpus. Check its id.")


def _info(db: Session, corpus: Corpus) -> wire.CorpusInfo:
    chunks = corpora.count(db, corpus.id)
    return shape(wire.CorpusInfo, corpus, chunk_count=chunks, updated_at=corpus.updated or corpus.created)
