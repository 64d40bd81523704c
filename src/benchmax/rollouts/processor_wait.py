"""How long a thread was ready to run while others had the processor: what a busy machine adds to any time."""

from __future__ import annotations

import os
import threading


class ProcessorWait:
    """Measures the thread that creates it; always 0 on systems that do not report it."""

    def __init__(self) -> None:
        self._at, self._before = 0.0, 0.0
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, AttributeError):
            self._fd = -1

    def note(self, now: float, at_least: float) -> None:
        """Begin to count, unless that was done less than `at_least` before; asking the system takes microseconds."""
        if now - self._at > at_least:
            self._at, self._before = now, self._total()

    def waited(self) -> float:
        """Seconds since the last note."""
        return self._total() - self._before

    def _total(self) -> float:
        return int(os.pread(self._fd, 64, 0).split()[1]) / 1e9 if self._fd >= 0 else 0.0

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


_local = threading.local()


def this_thread() -> ProcessorWait:
    try:
        time: ProcessorWait = _local.time
    except AttributeError:
        time = _local.time = ProcessorWait()
    return time
