"""Append-only records: one JSON object a line, readable after any crash.

A line is written in one call, so a killed process leaves at most one incomplete line at the end; it is ignored when
reading and cut off when writing continues. Damage in the middle is reported with its line number.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from benchmax.errors import RecordError, UsageError
from benchmax.files.redaction import without_secrets_in


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a record file."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RecordError(f"{path}:{number} is damaged: {error}. Remove that line to read the rest.") from None


def line_of(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON, without the secrets of this process."""
    clean = without_secrets_in(record)
    return json.dumps(clean, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


class JsonlWriter:
    """Appends JSON lines to a file, with a lock that keeps others from appending to it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if not isinstance(error, BlockingIOError):  # a disk without locks, say
                raise
            raise UsageError(
                f"{self.path} is being written by another process. Wait for it, or use another folder."
            ) from None
        _cut_incomplete_line(self.path)

    def write(self, record: dict[str, Any]) -> None:
        data = line_of(record).encode("utf-8", errors="surrogatepass")
        written = self._file.write(data)
        if written != len(data):  # a full disk: leave no incomplete line
            self._file.truncate(self._file.tell() - (written or 0))
            raise OSError(28, "No space left on device", str(self.path))

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut_incomplete_line(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            file.truncate(end)
