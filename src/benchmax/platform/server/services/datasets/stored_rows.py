"""Reading the rows of an uploaded dataset: a preview, all of them, their number, whether a run can use them.

Each is a question of `preview`, which `bounded_rows` asks here or in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from benchmax.envs.datasets.readers import file_format
from benchmax.envs.datasets.rows import Finding, check_messages
from benchmax.envs.datasets.text_readers import JSON_FILE_BYTES
from benchmax.errors import DatasetError, UsageError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree
from benchmax.platform.server.services.datasets import bounded_rows
from benchmax.platform.server.services.datasets.preview import PREVIEW_ROWS
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.wire.datasets import DatasetPreview


@contextmanager
def dataset_file(store: BlobStore, sha256: str, path: str) -> Iterator[Path]:
    """A blob under a name with the suffix its path had, for readers that go by it."""
    suffix, known = PurePosixPath(path).suffix.lower(), file_format(path)
    most = JSON_FILE_BYTES if known is None else known.most_bytes
    if most is not None and store.path(sha256).stat().st_size > most:
        raise UsageError(f"{path} is too large to be read at once. Upload it as .jsonl.")
    folder = make_owned_dir("benchmax-rows-")
    link = folder / f"dataset{suffix}"
    try:
        os.symlink(store.path(sha256).absolute(), link)
        yield link
    except UsageError as error:  # it names the file, and that name is the server's own business
        raise UsageError(str(error).replace(str(link), path)) from None
    finally:
        remove_tree(folder)


def preview(
    store: BlobStore, sha256: str, size: int, path: str, limit: int, environment: str | None = None
) -> DatasetPreview:
    """The first rows, and what is wrong with any of the first 100,000, as a built-in environment reads them."""
    (seen,) = _ask(store, sha256, path, "preview", limit=limit, environment=environment)
    return DatasetPreview.model_validate({"path": path, "bytes": size, **seen})


def read(store: BlobStore, sha256: str, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file; DatasetError, with its line, at one that cannot be read."""
    return _ask(store, sha256, path, "rows", path=path)


def first(store: BlobStore, sha256: str, path: str, count: int) -> list[Any]:
    """The first rows of a file, as they are; UsageError when they are too much to be held."""
    return list(_ask(store, sha256, path, "first", count=count))


def check(store: BlobStore, sha256: str, path: str, reader: str) -> int:
    """Usable rows of a dataset; DatasetError, with row, column, reason and fix, for one that is not."""
    (usable,) = _ask(store, sha256, path, "check", path=path, environment=reader)
    return int(usable) if usable < PREVIEW_ROWS else count(store, sha256, path)


def count(store: BlobStore, sha256: str, path: str) -> int:
    """Rows of a dataset."""
    (rows,) = _ask(store, sha256, path, "count")
    return int(rows)


def _ask(store: BlobStore, sha256: str, name: str, do: str, **more: Any) -> Iterator[Any]:
    """What a question brings about the upload of that name."""
    with dataset_file(store, sha256, name) as file:
        yield from bounded_rows.answers(file, do, **more)


def check_sft(store: BlobStore, sha256: str, path: str) -> int:
    """The number of rows of a supervised run; DatasetError for the first that has no answer to learn."""
    number = 0
    for number, row in enumerate(read(store, sha256, path), start=1):
        if fault := _nothing_to_learn(row):
            column = f", {fault.column}" if fault.column else ""
            way = f"{fault.fix[:1].upper()}{fault.fix[1:]}, or leave it out."
            raise DatasetError(f"Row {number} of {path}{column}: {fault.reason}. {way}")
    if not number:
        raise DatasetError(f"{path} has no rows. Add some.")
    return number


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
