"""Asks what is in a file: here when it is small and read in pieces, else through `rows_child`, few at a time and in
bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.datasets.readers import file_format
from benchmax.errors import DatasetError, UsageError
from benchmax.platform.server.services.datasets.preview import QUESTIONS

SMALL_BYTES = limits.MIB
"""A file of up to this size is read here, in pieces: it takes less memory than a child process."""
AT_ONCE = 2
WAIT_SECONDS = 60.0

_places = threading.BoundedSemaphore(AT_ONCE)


def answers(file: Path, do: str, **more: Any) -> Iterator[Any]:
    """What one of `preview.QUESTIONS` brings; DatasetError when the file takes too much to be read."""
    known = file_format(file)
    if (known is None or not known.whole) and file.stat().st_size <= SMALL_BYTES:
        yield from QUESTIONS[do](file, **more)
        return
    for kind, value in _said_by_child({"file": str(file), "do": do, "more": more}):
        if kind == "end":
            return
        if kind == "error":
            raise DatasetError(value)
        yield value
    raise DatasetError(f"{file} takes too much memory or time to be read at once. Upload it as .jsonl.")


def _said_by_child(asked: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    command = [sys.executable, "-P", "-m", "benchmax.platform.server.services.datasets.rows_child"]
    variables = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with _place(), subprocess.Popen(command, env=variables, **pipes) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(BrokenPipeError):  # it could not start
                child.stdin.write(json.dumps(asked).encode())
                child.stdin.close()
            yield from map(json.loads, child.stdout)
        finally:
            child.kill()


@contextmanager
def _place() -> Iterator[None]:
    if not _places.acquire(timeout=WAIT_SECONDS):
        raise UsageError("Other large files are being read. Try again, or upload the rows as .jsonl.")
    try:
        yield
    finally:
        _places.release()
