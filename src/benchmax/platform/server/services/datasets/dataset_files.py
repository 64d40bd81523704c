"""Uploaded datasets: finding one by its path, naming a file, adding a row. A file is never changed: its path is set to
another blob.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.envs.datasets.load import jsonl_line
from benchmax.envs.datasets.readers import FORMATS, file_format
from benchmax.errors import NotFoundError, UsageError
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.datasets.stored_rows import StoredRows
from benchmax.platform.store.tables import Blob, BlobPath, Upload
from benchmax.platform.store.uploads import blobs, uploads
from benchmax.platform.store.uploads.blobs import BlobStore

GROWN_BYTES = 64 * limits.MIB
"""A larger file is not rewritten for one row."""
_SPLITS = {"train": "train", "eval": "eval", "val": "eval", "validation": "eval", "test": "eval"}
"""Names of files in a folder of both."""
NOT_THERE = "You have no dataset at that path. Check the path; the console and `list_datasets` show yours."


def find(db: Session, owner_id: str, path: str) -> tuple[BlobPath, Blob]:
    """The caller's dataset of that path; NotFoundError when there is none."""
    found = blobs.find(db, owner_id, path)
    if found is None or file_format(path) is None:
        raise NotFoundError(NOT_THERE)
    return found


def splits_of(services: Services, owner_id: str, path: str) -> dict[str, StoredRows]:
    """What a path names: one file, as `train`, or the files of a folder, as `train` and `eval`; nothing otherwise."""
    folder = f"{path.rstrip('/')}/"
    with services.database.read() as db:
        if blobs.find(db, owner_id, path) is not None:
            return {"train": StoredRows(services.blobs, find(db, owner_id, path)[1].sha256, path)}
        files = uploads.datasets_of(db, owner_id, tuple(FORMATS), folder)
    found: dict[str, StoredRows] = {}
    for row, blob in files:
        name = PurePosixPath(row.path.removeprefix(folder))
        split = _SPLITS.get(name.stem.lower())
        if split is not None and len(name.parts) == 1:
            found.setdefault(split, StoredRows(services.blobs, blob.sha256, row.path))
    return found


def latest(db: Session, owner_id: str, path: str, *, lock: bool = False) -> tuple[BlobPath, Blob]:
    """The version to add rows to: the JSON lines that a file became with its first added row, or the file itself.

    Locked, no other transaction adds to it until this one ends.
    """
    for each in dict.fromkeys((path, lines_path(path))) if lock else ():
        db.get(BlobPath, (owner_id, each), with_for_update=True)
    lines = blobs.find(db, owner_id, lines_path(path))
    return lines or find(db, owner_id, path)


def store_rows(store: BlobStore, found: Iterable[dict[str, Any]]) -> tuple[str, int, int]:
    """Write rows as JSON lines; returns SHA-256, bytes and rows. The file has no name yet."""
    count = 0
    with store.receive() as incoming:
        for count, row in enumerate(found, start=1):
            incoming.write(f"{jsonl_line(row, count)}\n".encode())
        return incoming.keep(), incoming.size, count


def with_row(store: BlobStore, blob: Blob, path: str, row: dict[str, Any]) -> tuple[str, int, int]:
    """The same rows and one more, as JSON lines."""
    if blob.size > GROWN_BYTES:
        raise UsageError(f"{path} is too large to add rows to one by one. Upload it again with them.")
    return store_rows(store, chain(StoredRows(store, blob.sha256, path).read(), [row]))


def name(db: Session, owner_id: str, path: str, sha256: str, size: int, count: int | None) -> None:
    """Set a path of the owner to a blob."""
    known = file_format(path)
    mime_type = known.mime_type if known else "application/octet-stream"
    blobs.name_blob(db, Upload(owner_id=owner_id, path=blobs.check_path(path), mime_type=mime_type), sha256, size)
    blob = db.get(Blob, sha256, populate_existing=True)
    if blob is not None and count is not None:
        blob.rows = count


def lines_path(path: str) -> str:
    """The same path for JSON lines."""
    check_suffix(path)
    suffix = PurePosixPath(path).suffix
    return path if suffix.lower() == ".jsonl" else f"{path.removesuffix(suffix)}.jsonl"


def check_suffix(path: str) -> None:
    """Raise UsageError for a path that is not of a dataset file."""
    if file_format(path) is None:
        raise UsageError(f"{path!r} is no dataset file. Its name must end in {', '.join(FORMATS)}.")
