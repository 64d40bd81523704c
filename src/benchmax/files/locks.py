"""Locks between processes: the kernel releases them when their holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from math import inf
from pathlib import Path

_RETRY_SECONDS = 0.05


def lock_file(path: Path, *, shared: bool = False, wait: float = 0.0) -> int:
    """A descriptor that holds the lock of a file, created if needed, until it is closed.

    When another process holds it for longer than `wait` seconds, it raises BlockingIOError; any number may hold a
    `shared` one. The file is not followed when it is a link.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _take(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _take(descriptor: int, kind: int, wait: float) -> None:
    if wait == inf:
        fcntl.flock(descriptor, kind)
        return None
    until = time.monotonic() + wait
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_RETRY_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file that is there. Asking takes it for a moment, shared."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
