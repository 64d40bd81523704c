"""An owner's uploads: datasets and environments, distinguished by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.errors import UsageError
from benchmax.files import json_size
from benchmax.platform.store.tables import Blob, BlobPath, Run
from benchmax.platform.store.uploads.blobs import paths_of

MANIFEST = "env-metadata.json"
MANIFEST_BYTES = 16 * limits.MIB
"""A larger one is not read."""
BUILT_IN_ENVS = "envs/built-in/"
"""Where bundles of built-in environments are put; they are not listed as uploads."""
SPLITS = "splits/"
"""Where the two halves of a dataset are put that a launch has split; they are not listed as datasets."""
_MOST_UPLOADS = 5_000


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
