"""Whether anything still needs a stored file, and removing those that nothing does."""

from __future__ import annotations

import math
import time

from sqlalchemy import Text, cast, delete, exists, select
from sqlalchemy.orm import Session

from benchmax.platform.store.queue.one_off_jobs import UNFINISHED
from benchmax.platform.store.tables import Blob, BlobPath, Eval, OneOffJob, Run
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.wire.values import ENDED

_SETTLED_SECONDS = 60.0
"""A file younger than this may be about to get a name."""
_UNKNOWN_SECONDS = 86_400.0
"""A file without a row that is older than this never gets one."""


def drop_if_unused(db: Session, store: BlobStore, sha256: str) -> None:
    """Remove a blob that nothing needs. One that came just now is left to `sweep`."""
    file = store.path(sha256)
    try:
        young = file.stat().st_mtime > time.time() - _SETTLED_SECONDS
    except FileNotFoundError:
        young = False
    if not young and not _is_needed(db, sha256):
        db.execute(delete(Blob).where(Blob.sha256 == sha256))
        file.unlink(missing_ok=True)


def _is_needed(db: Session, sha256: str) -> bool:
    """Whether a path names it, a run was launched with it, or work that is not done reads it."""
    uses = (
        select(BlobPath.path).where(BlobPath.sha256 == sha256),
        select(Run.id).where(cast(Run.blobs, Text).contains(sha256)),
        select(OneOffJob.id).where(OneOffJob.status.in_(UNFINISHED), cast(OneOffJob.options, Text).contains(sha256)),
        select(Eval.id).where(Eval.status.not_in(ENDED), cast(Eval.options, Text).contains(sha256)),
    )
    return any(db.scalars(use.limit(1)).first() is not None for use in uses)


def sweep(db: Session, store: BlobStore) -> None:
    """Remove the blobs that nothing names any more."""
    nameless = select(Blob.sha256).where(~exists().where(BlobPath.sha256 == Blob.sha256))
    for sha256 in (*db.scalars(nameless).all(), *_unknown(db, store)):
        drop_if_unused(db, store, sha256)


def _unknown(db: Session, store: BlobStore) -> list[str]:
    """Files without a row: their server was killed before it could write one.

    A file from before this database's first is left alone: it may be another's, which is to be restored yet.
    """
    rows = db.execute(select(Blob.sha256, Blob.created)).all()
    known = {row.sha256 for row in rows}
    first, last = min((row.created for row in rows), default=math.inf), time.time() - _UNKNOWN_SECONDS
    return [sha256 for sha256, written in store.every() if first <= written < last and sha256 not in known]
