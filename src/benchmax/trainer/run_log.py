"""A run's log file: what benchmax logs during the run, without the run's secrets."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmax.files.logs import SecretFreeFormatter


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Log to a file for the time of the block."""
    handler = LogFile(path, encoding="utf-8")
    handler.setFormatter(SecretFreeFormatter())
    root = logging.getLogger("benchmax")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class LogFile(logging.FileHandler):
    """Ignores a log that cannot be written: a full disk ends the run by what the run itself cannot write."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
