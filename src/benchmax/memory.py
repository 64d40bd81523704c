"""The process's memory: what counts as out of it, and what the garbage collector need not look at."""

from __future__ import annotations

import errno
import gc
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_WORDS = re.compile(
    r"out of memory|not enough memory|allocate memory|unable to mmap|bad_alloc"
    r"|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"  # CUDA's libraries, whose workspaces are outside torch's memory
    r"|could not create a primitive(?! descriptor)",  # oneDNN; a descriptor it lacks for other reasons
    re.IGNORECASE,
)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error tells that memory ran out: Python, torch, oneDNN and the system each say it in their own way.

    Torch's own is known by its name: importing it takes seconds.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(_WORDS.search(str(error)))


_lock = threading.Lock()
_blocks = 0


@contextmanager
def settled() -> Iterator[None]:
    """Keep what is in memory now out of garbage collection for the time of the block.

    Rollouts make objects by the hundred thousand, and so cause full collections. With torch and a model's libraries
    loaded one takes a fifth of a second, in which neither rollouts nor the device get on; what the block itself leaves
    behind is collected as ever.
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
