"""Logs of processes: opened to append, rotated before they fill the disk, and read from their end."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from benchmax.files.links import append_to, open_plain
from benchmax.files.redaction import without_secrets

LOG_BYTES = 32 * 1024 * 1024
"""A larger log is rotated: `x.log` becomes `x.log.1`."""


class SecretFreeFormatter(logging.Formatter):
    """Lines with their time, and without the run's secrets, which an environment may log."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class LogFile(logging.FileHandler):
    """Ignores a log that cannot be written: a full disk ends a run by what the run itself cannot write."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Log what benchmax logs to a file, without the run's secrets, for the time of the block."""
    handler = LogFile(path, encoding="utf-8")
    handler.setFormatter(SecretFreeFormatter())
    root = logging.getLogger("benchmax")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with suppress(OSError):
            handler.close()


def open_log(path: Path) -> BinaryIO:
    """A private log to append to, rotated first if it is large. A link or a pipe in its place is removed."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
    elif file_size(path) > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return open(append_to(path.parent, path.name), "ab")


def rotate(path: Path) -> None:
    """Rotate a large log while a process appends to it: copied and emptied, so that its descriptor stays valid."""
    if file_size(path) > LOG_BYTES:
        with suppress(OSError):
            old = path.with_suffix(".log.1")
            old.unlink(missing_ok=True)
            with open_plain(path.parent, path.name) as source, open_log(old) as target:
                shutil.copyfileobj(source, target)
            os.truncate(path, 0)


def tail(path: Path, lines: int, *, since: int = 0, most: int = LOG_BYTES) -> str:
    """The last lines after byte `since`, from at most `most` bytes; empty when there is no such file."""
    try:
        with open_plain(path.parent, path.name) as file:
            end = file.seek(0, os.SEEK_END)
            first = max(since if since <= end else 0, end - most)
            size, data = 400 * lines, b""
            while data.count(b"\n") <= lines and len(data) < end - first:
                start = file.seek(max(first, end - size))
                data, size = file.read(end - start), 4 * size
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:])


def modified_at(path: Path) -> float:
    """When a file was last changed; 0 when there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def file_size(path: Path) -> int:
    """Bytes of a file; 0 when there is none, or when it is being rotated."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
