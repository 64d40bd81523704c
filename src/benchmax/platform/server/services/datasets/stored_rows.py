"""Reading the rows of an uploaded dataset: a preview, all of them, their number, whether a run can use them.

Each is a question of `preview`, which `bounded_rows` asks here or in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from benchmax.envs.datasets.readers import file_format
from benchmax.envs.datasets.rows import Complaint, check_messages
from benchmax.envs.datasets.text_readers import JSON_FILE_BYTES
from benchmax.errors import DatasetError, UsageError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree
from benchmax.platform.server.services.datasets import bounded_rows
from benchmax.platform.server.services.datasets.preview import PREVIEW_ROWS
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.wire.datasets import DatasetPreview


class StoredRows(NamedTuple):
    """The rows of an uploaded dataset."""

    store: BlobStore
    sha256: str
    path: str
    """What it was uploaded as."""

    def preview(self, limit: int, environment: str | None = None) -> DatasetPreview:
        """The first rows, and what is wrong with any of the first 100,000, as a built-in environment reads them."""
        (seen,) = self._ask("preview", limit=limit, environment=environment)
        size = self.store.path(self.sha256).stat().st_size
        return DatasetPreview.model_validate({"path": self.path, "bytes": size, **seen})

    def read(self) -> Iterator[dict[str, Any]]:
        """All rows; DatasetError, with its line, at one that cannot be read."""
        return self._ask("rows", path=self.path)

    def first(self, count: int) -> list[Any]:
        """The first rows, as they are; UsageError when they are too much to be held."""
        return list(self._ask("first", count=count))

    def check(self, reader: str) -> int:
        """The number of usable rows; DatasetError, with row, column, reason and fix, for one that is not."""
        (usable,) = self._ask("check", path=self.path, environment=reader)
        return int(usable) if usable < PREVIEW_ROWS else self.number()

    def number(self) -> int:
        """How many rows there are, usable or not."""
        (rows,) = self._ask("count")
        return int(rows)

    def check_sft(self) -> int:
        """The number of rows of a supervised run; DatasetError for the first that has no answer to learn."""
        number = 0
        for number, row in enumerate(self.read(), start=1):
            if fault := _nothing_to_learn(row):
                column = f", {fault.column}" if fault.column else ""
                way = f"{fault.fix[:1].upper()}{fault.fix[1:]}, or leave it out."
                raise DatasetError(f"Row {number} of {self.path}{column}: {fault.reason}. {way}")
        if not number:
            raise DatasetError(f"{self.path} has no rows. Add some.")
        return number

    def _ask(self, do: str, **more: Any) -> Iterator[Any]:
        with self._file() as file:
            yield from bounded_rows.answers(file, do, **more)

    @contextmanager
    def _file(self) -> Iterator[Path]:
        """The blob under a name with the suffix its path had, for readers that go by it."""
        blob, known = self.store.path(self.sha256), file_format(self.path)
        most = JSON_FILE_BYTES if known is None else known.most_bytes
        if most is not None and blob.stat().st_size > most:
            raise UsageError(f"{self.path} is too large to be read at once. Upload it as .jsonl.")
        folder = make_owned_dir("benchmax-rows-")
        link = folder / f"dataset{PurePosixPath(self.path).suffix.lower()}"
        try:
            os.symlink(blob.absolute(), link)
            yield link
        except UsageError as error:  # it names the file by a path of the server
            raise UsageError(str(error).replace(str(link), self.path)) from None
        finally:
            remove_tree(folder)


def _nothing_to_learn(row: dict[str, Any]) -> Complaint | None:
    """Why a supervised run could not learn from a row, if it could not."""
    for column in ("messages", "prompt_messages"):
        if chat := row.get(column):
            errors = [each for each in check_messages(column, chat) if each.severity == "error"]
            if not errors and chat[-1].get("role") != "assistant":
                return Complaint(column, "does not end with an assistant turn", "add the answer to be learned")
            return errors[0] if errors else None
    if row.get("prompt") and any(row.get(name) is not None for name in ("completion", "ground_truth")):
        return None
    reason = "has neither `messages` that end with the assistant, nor `prompt` with `completion`"
    return Complaint(None, reason, "correct it")
