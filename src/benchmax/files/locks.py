"""Locks between processes: the kernel releases them when their holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock_file(path: Path, *, shared: bool = False, wait: bool = False) -> int:
    """A descriptor that holds the lock of a file, created if needed, until it is closed.

    When another process holds it, it waits, or raises BlockingIOError; any number may hold a `shared` one.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
