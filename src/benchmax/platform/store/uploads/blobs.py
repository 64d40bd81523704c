"""Files, found by their content. A path is a name an owner gave, never a place on disk.

An upload streams into a temporary file, is synced, and is renamed to its SHA-256; only then does a row name it.
A killed server leaves temporary files, which `sweep` removes, or blobs without a row, for `unused_blobs.sweep`.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.files.atomic import TEMPORARY
from benchmax.platform.store.accounts.api_keys import works
from benchmax.platform.store.accounts.tokens import create_token, digest
from benchmax.platform.store.statements import get_locked, upsert
from benchmax.platform.store.tables import ApiKey, Blob, BlobPath, Upload, User

PATH_CHARS = 500


def check_path(path: str) -> str:
    """A path such as `datasets/my run (2)/ab12/train.jsonl`, as given; UsageError for what could mean another.

    Older clients put the name of a run into it as the user wrote it.
    """
    plain = unicodedata.normalize("NFKC", path)  # `．．` is `..` to many a program
    hidden = "\\" in plain or not path.isprintable()
    if hidden or len(path) > PATH_CHARS or not all(part.strip(" .") for part in plain.split("/")):
        raise UsageError(
            f"The path {path[:80]!r} cannot be used. Give names of visible characters, none of them a backslash, "
            f"joined by single /, at most {PATH_CHARS} characters."
        )
    return path


class BlobStore:
    """The files under `blobs/`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        """Where a blob lies; the name is checked again, whoever wrote it to the database."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise UsageError("That is not the SHA-256 of a file.")
        return self.root / sha256[:2] / sha256

    def receive(self) -> Incoming:
        """A place to write a new blob to, piece by piece."""
        return Incoming(self)

    def every(self) -> Iterator[tuple[str, float]]:
        """The SHA-256 of each blob, and when it was written."""
        for path in self.root.glob(f"[0-9a-f][0-9a-f]/{'[0-9a-f]' * 64}"):
            with suppress(FileNotFoundError):
                yield path.name, path.stat().st_mtime

    def sweep(self) -> None:
        """Remove what broken uploads left. Nobody may be uploading now."""
        for path in self.root.glob(f"{TEMPORARY}*"):
            path.unlink(missing_ok=True)


class Incoming:
    """A blob being written. Leaving the block without `keep()` removes it."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._hash = hashlib.sha256()
        self._path = store.root / f"{TEMPORARY}{secrets.token_hex(8)}"
        self._file = open(self._path, "xb", opener=_private)  # noqa: SIM115 - closed by __exit__
        self.size = 0

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._hash.update(piece)
        self.size += len(piece)

    def keep(self) -> str:
        """Put the blob in its place, whole and on disk; returns its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        sha256 = self._hash.hexdigest()
        place = self._store.path(sha256)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        self._path.replace(place)
        return sha256

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


# Rows


def create_upload(
    db: Session, owner_id: str, path: str, mime_type: str, seconds: float, key_id: str | None = None
) -> tuple[str, Upload]:
    """A token that lets its bearer PUT one file to `path`, once, while the key that asked for it works."""
    columns = {"owner_id": owner_id, "path": check_path(path), "mime_type": mime_type, "key_id": key_id}
    return create_token(db, Upload, seconds, **columns)


def claim_upload(db: Session, token: str) -> Upload | None:
    """Use the token up; None when it is unknown, used or too old."""
    row = get_locked(db, Upload, digest(token))
    if row is None or row.used or row.expires <= time.time() or not is_allowed(db, row):
        return None
    row.used = True
    return row


def is_allowed(db: Session, upload: Upload) -> bool:
    """Whether the key that asked for the address still works, and the user was not removed meanwhile."""
    owner = db.get(User, upload.owner_id)
    key = db.get(ApiKey, upload.key_id) if upload.key_id else None
    works_still = upload.key_id is None or (key is not None and works(key))
    return works_still and owner is not None and owner.deleted is None


def reopen_upload(db: Session, upload: Upload) -> None:
    """Give a token back after a transfer that broke, so that the client can try again."""
    row = db.get(Upload, upload.digest)
    if row is not None:
        row.used = False


def name_blob(db: Session, upload: Upload, sha256: str, size: int) -> None:
    """Give the blob the upload's path."""
    note_nameless(db, sha256, size)
    named = {"owner_id": upload.owner_id, "path": upload.path, "mime_type": upload.mime_type}
    upsert(db, BlobPath, [named | {"sha256": sha256, "updated": time.time()}], key=("owner_id", "path"))


def note_nameless(db: Session, sha256: str, size: int) -> None:
    """Remember a file that has no path, so that `unused_blobs.sweep` finds it."""
    upsert(db, Blob, [{"sha256": sha256, "size": size, "created": time.time()}], key=("sha256",))


def find(db: Session, owner_id: str, path: str) -> tuple[BlobPath, Blob] | None:
    """The owner's blob of that path."""
    query = select(BlobPath, Blob).join(Blob, Blob.sha256 == BlobPath.sha256)
    return db.execute(query.where(BlobPath.owner_id == owner_id, BlobPath.path == path)).one_or_none()


def paths_of(
    db: Session, owner_id: str, prefix: str = "", limit: int = 1000, *conditions: ColumnElement[bool]
) -> list[tuple[BlobPath, Blob]]:
    """The owner's paths under a prefix that meet the conditions, newest first."""
    query = select(BlobPath, Blob).join(Blob, Blob.sha256 == BlobPath.sha256)
    query = query.where(BlobPath.owner_id == owner_id, *conditions)
    if prefix:
        query = query.where(BlobPath.path.startswith(prefix, autoescape=True))
    return list(db.execute(query.order_by(BlobPath.updated.desc(), BlobPath.path).limit(limit)))
