"""Memory and disks: which errors mean that they are used up, and keeping objects out of garbage collection."""

from __future__ import annotations

import errno
import gc
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MESSAGES = re.compile(
    r"out of memory|not enough memory|allocate memory|unable to mmap|bad_alloc"
    r"|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"  # CUDA's libraries, whose workspaces are outside torch's memory
    r"|could not create a primitive(?! descriptor)",  # oneDNN; a descriptor it lacks for other reasons
    re.IGNORECASE,
)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out: Python, torch, oneDNN and the system each report it in their own way.

    Torch's own error is recognised by its name, because importing torch takes seconds.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(_MESSAGES.search(str(error)))


def disk_is_full(error: BaseException) -> bool:
    """Whether an error means that a disk or a quota is used up; native libraries only say so in their text."""
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError):
        return error.errno in codes
    text = str(error)
    native = any(f"os error {code})" in text or f"code: {code}," in text for code in codes)
    return native or os.strerror(errno.ENOSPC) in text


_lock = threading.Lock()
_blocks = 0


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Keep the objects that exist now out of garbage collection while the block runs.

    Rollouts create objects by the hundred thousand, and so trigger full collections. With torch and a model's libraries
    loaded one takes a fifth of a second, in which neither rollouts nor the device progress. What the block itself
    creates is collected as usual.
    """
    global _blocks
    with _lock:
        _blocks += 1
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                gc.unfreeze()
