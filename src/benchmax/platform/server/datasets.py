"""Uploaded rows: what is in a file, splitting it for a launch, adding a row to it. The file itself is never changed:
a path is let name another blob.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import check_dataset, iter_examples, jsonl_line
from benchmax.envs.readers import read_rows
from benchmax.envs.rows import RowIssue
from benchmax.errors import DatasetError, NotFoundError, UsageError
from benchmax.platform.schemas import DatasetIssue, DatasetPreview
from benchmax.platform.server.launch import GOOD_ROWS, dataset_file
from benchmax.platform.store import blobs
from benchmax.platform.store.blobs import BlobStore
from benchmax.platform.store.tables import Blob, BlobPath, Upload

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
PREVIEW_ROWS = 100_000
GROWN_BYTES = 64 * limits.MIB
"""A larger file is not written anew for one row."""
MIME_TYPE = "application/jsonl"
NOT_THERE = "You have no dataset at that path. Check the path; the console and `list_datasets` show yours."


def find(session: Session, owner_id: str, path: str) -> tuple[BlobPath, Blob]:
    """The caller's dataset of that path; NotFoundError when there is none."""
    found = blobs.find(session, owner_id, path)
    if found is None or PurePosixPath(path).suffix.lower() not in SUFFIXES:
        raise NotFoundError(NOT_THERE)
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
    store: BlobStore, sha256: str, size: int, path: str, limit: int, env_class: type[BaseEnv] | None = None
) -> DatasetPreview:
    """The first rows, and what is wrong with any of the first 100,000."""
    with dataset_file(store, sha256, path) as file:
        report = check_dataset(file, env_class, limit=PREVIEW_ROWS)
        sample = [row.data for _, row in zip(range(limit), read_rows(file), strict=False) if isinstance(row.data, dict)]
    return DatasetPreview(
        path=path,
        bytes=size,
        rows=report.rows,
        usable=report.kept,
        duplicates=report.duplicates,
        errors=report.errors,
        warnings=report.warnings,
        issues=[_issue(issue) for issue in report.issues],
        sample=json.loads(json.dumps(sample, default=str)),
        ids=[_example_id(row, env_class) for row in sample],
    )


def _example_id(row: dict[str, Any], env_class: type[BaseEnv] | None) -> str | None:
    try:
        return next(iter_examples([row], env_class, lenient=True))["id"]
    except (DatasetError, StopIteration):
        return None


def _issue(issue: RowIssue) -> DatasetIssue:
    return DatasetIssue(
        row=issue.row, field=issue.column, severity=issue.severity, message=f"{issue.reason} → {issue.fix}"
    )


def rows(store: BlobStore, sha256: str, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file; one that cannot be read stops here, with its line."""
    with dataset_file(store, sha256, path) as file:
        for row in read_rows(file):
            if row.fault is not None:
                issue = row.issue(row.fault)
                raise DatasetError(f"The dataset has a row that cannot be read:\n  {issue}", [issue])
            if not isinstance(row.data, dict):
                raise DatasetError(f"Row {row.number} of {path} is no object. Give one object a row.")
            yield row.data


def check_count(count: int) -> None:
    """Refuse too few rows, in the SDK's words."""
    fewest = limits.MIN_TRAIN_ROWS
    if count < fewest:
        raise DatasetError(
            f"A training run needs at least {fewest} training rows; there are {count}. "
            f"Add {fewest - count} or more; {GOOD_ROWS} and up is better. Nothing was uploaded."
        )


def sft_rows(store: BlobStore, sha256: str, path: str) -> int:
    """The number of rows of a supervised run; refuses the first that has no answer to learn."""
    count = 0
    for count, row in enumerate(rows(store, sha256, path), start=1):
        chat = row.get("messages") or row.get("prompt_messages")
        good = (
            bool(chat)
            if chat is not None
            else bool(row.get("prompt")) and not {"completion", "ground_truth"}.isdisjoint(row)
        )
        if not good:
            raise DatasetError(
                f"Row {count} of {path} has neither `messages` that end with the assistant, nor `prompt` with "
                "`completion`. Correct it, or leave it out."
            )
    if not count:
        raise DatasetError(f"{path} has no rows. Add some.")
    return count


def held_out(count: int, share: float) -> set[int]:
    """Which of so many rows are held out: evenly spread, and no more than leave enough to train on."""
    aside = min(round(count * share), count - limits.MIN_TRAIN_ROWS)
    return {(number + 1) * count // aside - 1 for number in range(aside)} if aside > 0 else set()


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
    mime_type = MIME_TYPE if path.endswith(".jsonl") else "application/octet-stream"
    blobs.name_blob(session, Upload(owner_id=owner_id, path=blobs.check_path(path), mime_type=mime_type), sha256, size)
    blob = session.get(Blob, sha256, populate_existing=True)
    if blob is not None and count is not None:
        blob.rows = count


def lines_path(path: str) -> str:
    """The same path for JSON lines."""
    suffix = PurePosixPath(path).suffix
    if suffix.lower() == ".jsonl":
        return path
    if suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is no dataset file. Its name must end in {', '.join(SUFFIXES)}.")
    return f"{path.removesuffix(suffix)}.jsonl"
