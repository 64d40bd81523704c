"""Files of run directories, opened without following a link: what a run's own code puts there is not to be trusted.

A link in a run directory could lead to the platform's keys, and reading it on the run's behalf would hand them over.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(root: Path | int, name: str | os.PathLike[str]) -> BinaryIO:
    """A regular file below `root`, to be read; OSError when it, or a folder on the way to it, is anything else.

    `root` is a path, or a descriptor of a folder.
    """
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise FileNotFoundError(2, "not below the folder", str(name))
    folder = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(2, "not a regular file", str(name))
    return open(descriptor, "rb")


def read_plain(root: Path | int, name: str | os.PathLike[str], most: int) -> bytes:
    """What is in such a file; OSError also when it is larger than `most` bytes."""
    with open_plain(root, name) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(27, "too large", str(name))
        return file.read(most)
