"""An owner's uploads: datasets and environments, distinguished by their names; and when a blob may be deleted."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Text, cast, delete, exists, or_, select
from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.errors import UsageError
from benchmax.files import json_size
from benchmax.platform.store.queue.one_off_jobs import UNFINISHED
from benchmax.platform.store.tables import TERMINAL, Blob, BlobPath, Eval, OneOffJob, Run
from benchmax.platform.store.uploads.blobs import BlobStore, paths_of

MANIFEST = "env-metadata.json"
MANIFEST_BYTES = 16 * limits.MIB
"""A larger one is not read."""
BUILT_IN_ENVS = "envs/built-in/"
"""Where bundles of built-in environments are put; they are not listed as uploads."""
SPLITS = "splits/"
"""Where the two halves of a dataset are put that a launch has split; they are not listed as datasets."""
_MOST_UPLOADS = 5_000
_SETTLED_SECONDS = 60.0
"""A file younger than this may be about to get a name."""
_UNKNOWN_SECONDS = 86_400.0
"""A file without a row that is older than this never gets one."""


def manifest_bytes(given: Path | bytes) -> bytes:
    """What is in a bundle's manifest; UsageError when it is larger, or unfolds into more, than one ever does."""
    size = len(given) if isinstance(given, bytes) else given.stat().st_size
    content = given if isinstance(given, bytes) else given.read_bytes() if size <= MANIFEST_BYTES else b""
    if size > MANIFEST_BYTES or json_size.too_many(content):
        raise UsageError("The bundle's metadata is too large to be one's. Pack the environment again.")
    return content


def datasets_of(
    db: Session, owner_id: str, suffixes: Sequence[str], prefix: str = "", limit: int = 1000
) -> list[tuple[BlobPath, Blob]]:
    """The owner's files of these kinds, newest first; manifests of environments are none."""
    is_dataset = or_(*(BlobPath.path.iendswith(suffix, autoescape=True) for suffix in suffixes))
    is_split = BlobPath.path.startswith(SPLITS, autoescape=True)
    return paths_of(db, owner_id, prefix, limit, is_dataset, BlobPath.path.not_like(f"%{MANIFEST}"), ~is_split)


class Uploaded(NamedTuple):
    """An environment's two files, and where they lie."""

    folder: str
    cls_path: str
    cls_sha256: str
    metadata_path: str
    metadata_sha256: str
    updated: float


def environments_of(db: Session, owner_id: str) -> list[Uploaded]:
    """The owner's bundles, newest first, each once however many paths name it."""
    query = select(BlobPath.path, BlobPath.sha256, BlobPath.updated).where(
        BlobPath.owner_id == owner_id,
        or_(BlobPath.path.like("%.pkl"), BlobPath.path.like("%.pickle"), BlobPath.path.like(f"%{MANIFEST}")),
        ~BlobPath.path.startswith(BUILT_IN_ENVS, autoescape=True),
    )
    manifests: dict[str, tuple[str, str]] = {}
    pickles: list[tuple[str, str, float]] = []
    for path, sha256, updated in db.execute(query.order_by(BlobPath.updated.desc()).limit(_MOST_UPLOADS)):
        if path.endswith(MANIFEST):
            manifests[path.rpartition("/")[0]] = path, sha256
        else:
            pickles.append((path, sha256, updated))
    found: dict[tuple[str, str], Uploaded] = {}
    for path, sha256, updated in pickles:
        folder = path.rpartition("/")[0]
        if folder in manifests:
            manifest = manifests[folder]
            found.setdefault((sha256, manifest[1]), Uploaded(folder, path, sha256, *manifest, updated))
    return list(found.values())


def manifests(db: Session) -> set[str]:
    """The SHA-256 of the manifest of every environment that is stored or that a run was launched with."""
    stored = db.scalars(select(BlobPath.sha256).where(BlobPath.path.like(f"%{MANIFEST}")))
    launched = db.scalars(select(Run.blobs).where(Run.deleted.is_(None)))
    return {*stored, *(blobs["env_metadata_path"] for blobs in launched if blobs.get("env_metadata_path"))}


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
        select(Eval.id).where(Eval.status.not_in(TERMINAL), cast(Eval.options, Text).contains(sha256)),
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
