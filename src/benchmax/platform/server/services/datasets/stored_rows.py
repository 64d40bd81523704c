"""Reading the rows of an uploaded dataset: a preview, all of them, their number, whether a run can use them.

A file that is large, or can only be read whole, is read by `bounded_rows` in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from benchmax import limits
from benchmax.envs.datasets.readers import file_format, read_rows
from benchmax.envs.datasets.rows import Finding, check_messages
from benchmax.envs.datasets.text_readers import JSON_FILE_BYTES
from benchmax.errors import DatasetError, UsageError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree
from benchmax.platform.server.services.datasets import bounded_rows
from benchmax.platform.server.services.datasets.preview import PREVIEW_ROWS, check_file, make_preview, readable_rows
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
    with dataset_file(store, sha256, path) as file:
        if bounded_rows.is_needed(file):
            seen = bounded_rows.ask(file, "preview", limit=limit, environment=environment)
        else:
            seen = make_preview(file, limit, environment)
    return DatasetPreview.model_validate({"path": path, "bytes": size, **seen})


def read(store: BlobStore, sha256: str, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file; DatasetError, with its line, at one that cannot be read."""
    with dataset_file(store, sha256, path) as file:
        reader = bounded_rows.rows if bounded_rows.is_needed(file) else readable_rows
        yield from reader(file, path)


def first(store: BlobStore, sha256: str, path: str, count: int) -> list[Any]:
    """The first rows of a file, as they are; UsageError when they are too much to be held."""
    with dataset_file(store, sha256, path) as file:
        if bounded_rows.is_needed(file):
            return bounded_rows.first(file, path, count)
        return [row.data for row in islice(read_rows(file), count)]


def check(store: BlobStore, sha256: str, path: str, reader: str) -> int:
    """Usable rows of a dataset; DatasetError, with row, column, reason and fix, for one that is not."""
    with dataset_file(store, sha256, path) as file:
        if bounded_rows.is_needed(file):
            usable = int(bounded_rows.ask(file, "check", path=path, environment=reader)["rows"])
        else:
            usable = check_file(file, path, reader)
    return usable if usable < PREVIEW_ROWS else count(store, sha256, path)


def count(store: BlobStore, sha256: str, path: str) -> int:
    """Rows of a dataset."""
    with dataset_file(store, sha256, path) as file:
        if bounded_rows.is_needed(file):
            return int(bounded_rows.ask(file, "count")["rows"])
        known = file_format(file)
        return count_lines(file) if known and known.row_per_line else sum(1 for _ in read_rows(file))


def count_lines(path: Path) -> int:
    """Non-blank lines, in bounded memory however long a line is."""
    rows, blank = 0, True
    with open(path, "rb") as file:
        while piece := file.readline(limits.MIB):
            blank = blank and piece.isspace()
            if piece.endswith(b"\n"):
                rows += not blank
                blank = True
    return rows + (not blank)


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
