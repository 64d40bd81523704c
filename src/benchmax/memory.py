"""What counts as out of memory: Python, torch, oneDNN and the system each say it in their own way."""

from __future__ import annotations

import errno
import re

_WORDS = re.compile(
    r"out of memory|not enough memory|allocate memory|unable to mmap|bad_alloc"
    r"|could not create a primitive(?! descriptor)",  # oneDNN; a descriptor it lacks for other reasons
    re.IGNORECASE,
)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error tells that memory ran out. Torch's own is known by its name: importing it takes seconds."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(_WORDS.search(str(error)))
