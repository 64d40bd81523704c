"""Uploaded rows: what is in a file, splitting it for a launch, adding a row to it. The file itself is never changed:
a path is let name another blob.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.envs.datasets.load import jsonl_line
from benchmax.envs.datasets.readers import FORMATS, file_format, read_rows
from benchmax.envs.datasets.rows import Finding, check_messages
from benchmax.errors import DatasetError, NotFoundError, UsageError
from benchmax.platform.server.services import bounded_rows
from benchmax.platform.server.services import dataset_preview as dataset_look
from benchmax.platform.server.services.launch import dataset_file
from benchmax.platform.store.tables import Blob, BlobPath, Upload
from benchmax.platform.store.uploads import blobs
from benchmax.platform.store.uploads import uploads as libraries
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.wire.datasets import DatasetPreview

GROWN_BYTES = 64 * limits.MIB
"""A larger file is not written anew for one row."""
_SPLITS = {"train": "train", "eval": "eval", "val": "eval", "validation": "eval", "test": "eval"}
"""Names of files in a folder of both."""
NOT_THERE = "You have no dataset at that path. Check the path; the console and `list_datasets` show yours."


def find(session: Session, owner_id: str, path: str) -> tuple[BlobPath, Blob]:
    """The caller's dataset of that path; NotFoundError when there is none."""
    found = blobs.find(session, owner_id, path)
    if found is None or file_format(path) is None:
        raise NotFoundError(NOT_THERE)
    return found


def splits_of(session: Session, owner_id: str, path: str) -> dict[str, tuple[BlobPath, Blob]]:
    """What a path names: one file, as `train`, or the files of a folder, as `train` and `eval`; nothing otherwise."""
    single = blobs.find(session, owner_id, path)
    if single is not None:
        return {"train": find(session, owner_id, path)}
    folder = f"{path.rstrip('/')}/"
    found: dict[str, tuple[BlobPath, Blob]] = {}
    for row, blob in libraries.datasets_of(session, owner_id, tuple(FORMATS), folder):
        name = PurePosixPath(row.path.removeprefix(folder))
        split = _SPLITS.get(name.stem.lower())
        if split is not None and len(name.parts) == 1:
            found.setdefault(split, (row, blob))
    return found


def latest(session: Session, owner_id: str, path: str, *, lock: bool = False) -> tuple[BlobPath, Blob]:
    """The version to add rows to: the JSON lines that a file became with its first added row, or the file itself.

    Locked, no other transaction adds to it until this one ends.
    """
    for each in dict.fromkeys((path, lines_path(path))) if lock else ():
        session.get(BlobPath, (owner_id, each), with_for_update=True)
    lines = blobs.find(session, owner_id, lines_path(path))
    return lines or find(session, owner_id, path)


def preview(
    store: BlobStore, sha256: str, size: int, path: str, limit: int, environment: str | None = None
) -> DatasetPreview:
    """The first rows, and what is wrong with any of the first 100,000, as a built-in environment reads them."""
    with dataset_file(store, sha256, path) as file:
        if bounded_rows.is_needed(file):
            seen = bounded_rows.ask(file, "preview", limit=limit, environment=environment)
        else:
            seen = dataset_look.look(file, limit, environment)
    return DatasetPreview.model_validate({"path": path, "bytes": size, **seen})


def rows(store: BlobStore, sha256: str, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file; one that cannot be read stops here, with its line."""
    with dataset_file(store, sha256, path) as file:
        reader = bounded_rows.rows if bounded_rows.is_needed(file) else dataset_look.good_rows
        yield from reader(file, path)


def first_rows(store: BlobStore, sha256: str, path: str, count: int) -> list[Any]:
    """The first rows of a file, as they are; UsageError when they are too much to be held."""
    with dataset_file(store, sha256, path) as file:
        if bounded_rows.is_needed(file):
            return bounded_rows.first(file, path, count)
        return [row.data for row in islice(read_rows(file), count)]


def sft_rows(store: BlobStore, sha256: str, path: str) -> int:
    """The number of rows of a supervised run; refuses the first that has no answer to learn."""
    count = 0
    for count, row in enumerate(rows(store, sha256, path), start=1):
        if fault := _nothing_to_learn(row):
            column = f", {fault.column}" if fault.column else ""
            way = f"{fault.fix[:1].upper()}{fault.fix[1:]}, or leave it out."
            raise DatasetError(f"Row {count} of {path}{column}: {fault.reason}. {way}")
    if not count:
        raise DatasetError(f"{path} has no rows. Add some.")
    return count


def _nothing_to_learn(row: dict[str, Any]) -> Finding | None:
    """Why a supervised run could not learn from a row, if it could not."""
    for column in ("messages", "prompt_messages"):
        if chat := row.get(column):
            errors = [each for each in check_messages(column, chat) if each.severity == "error"]
            if not errors and chat[-1].get("role") != "assistant":
                return Finding(column, "does not end with an assistant turn", "add the answer to be learned")
            return errors[0] if errors else None
    if row.get("prompt") and any(row.get(name) is not None for name in ("completion", "ground_truth")):
        return None
    reason = "has neither `messages` that end with the assistant, nor `prompt` with `completion`"
    return Finding(None, reason, "correct it")


def store_rows(store: BlobStore, found: Iterable[dict[str, Any]]) -> tuple[str, int, int]:
    """Write rows as JSON lines; gives SHA-256, bytes and rows. It has no name yet."""
    count = 0
    with store.receive() as incoming:
        for count, row in enumerate(found, start=1):
            incoming.write(f"{jsonl_line(row, count)}\n".encode())
        return incoming.keep(), incoming.size, count


def with_row(store: BlobStore, blob: Blob, path: str, row: dict[str, Any]) -> tuple[str, int, int]:
    """The same rows and one more, as JSON lines."""
    if blob.size > GROWN_BYTES:
        raise UsageError(f"{path} is too large to add rows to one by one. Upload it again with them.")

    def every() -> Iterator[dict[str, Any]]:
        yield from rows(store, blob.sha256, path)
        yield row

    return store_rows(store, every())


def name(session: Session, owner_id: str, path: str, sha256: str, size: int, count: int | None) -> None:
    """Let a path of the owner name a blob."""
    known = file_format(path)
    mime_type = known.mime_type if known else "application/octet-stream"
    blobs.name_blob(session, Upload(owner_id=owner_id, path=blobs.check_path(path), mime_type=mime_type), sha256, size)
    blob = session.get(Blob, sha256, populate_existing=True)
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
