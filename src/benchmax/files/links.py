"""Opens files of run directories without following links: a run's own code may have put them there.

A link in a run directory could point to the platform's keys, and reading it for the run would disclose them.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for opening a directory."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(root: Path | int, name: str | os.PathLike[str]) -> BinaryIO:
    """A regular file below `root`, opened for reading; OSError when it, or a directory on the way, is anything else.

    `root` is a path, or a descriptor of a directory.
    """
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise FileNotFoundError(2, "not below the folder", str(name))
    folder = os.dup(root) if isinstance(root, int) else os.open(root, FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    return open(_regular(descriptor, name), "rb")


def append_to(root: Path, name: str) -> int:
    """A descriptor that adds to a regular file in `root`, made if it is not there; OSError when it is anything else."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _regular(os.open(root / name, flags, 0o600), name)


def _regular(descriptor: int, name: str | os.PathLike[str]) -> int:
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(2, "not a regular file", str(name))
    return descriptor


def read_plain(root: Path | int, name: str | os.PathLike[str], most: int) -> bytes:
    """The content of such a file; OSError also when it is larger than `most` bytes."""
    with open_plain(root, name) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(27, "too large", str(name))
        return file.read(most)
