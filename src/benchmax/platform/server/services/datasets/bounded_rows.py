"""Reads large files, and those that can only be read whole, through `rows_child`: few at a time, in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.datasets.readers import file_format
from benchmax.errors import DatasetError, UsageError
from benchmax.files import json_size

SMALL_BYTES = limits.MIB
"""A file of up to this size is read here, in pieces: it takes less memory than a child process."""
ROWS_BYTES = 32 * limits.MIB
"""Rows that are kept in memory at one time, as JSON."""
AT_ONCE = 2
WAIT_SECONDS = 60.0

_places = threading.BoundedSemaphore(AT_ONCE)


def is_needed(file: Path) -> bool:
    """Whether a file is read in a child: it is large, or cannot be read in pieces of a bounded size."""
    known = file_format(file)
    return (known is not None and known.whole) or file.stat().st_size > SMALL_BYTES


def ask(file: Path, do: str, **more: Any) -> dict[str, Any]:
    """The answer to a question about a file."""
    for _, answer in _answers(file, do, more):
        return dict(answer)
    raise _too_much(file)


def rows(file: Path, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file; DatasetError at one that cannot be read."""
    for kind, row in _answers(file, "rows", {"path": path}):
        if kind == "end":
            return
        yield row
    raise _too_much(file)


def first(file: Path, path: str, count: int) -> list[Any]:
    """The first rows; UsageError when they are too much to be held."""
    found: list[Any] = []
    held = json_size.Count(most_bytes=ROWS_BYTES)
    for kind, row in _answers(file, "first", {"path": path, "count": count}, held):
        if kind == "end":
            return found
        found.append(row)
    raise _too_much(file)


def _answers(
    file: Path, do: str, more: dict[str, Any], held: json_size.Count | None = None
) -> Iterator[tuple[str, Any]]:
    command = [sys.executable, "-P", "-m", "benchmax.platform.server.services.datasets.rows_child"]
    variables = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with _place(), subprocess.Popen(command, env=variables, **pipes) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps({"file": str(file), "do": do, **more}).encode())
            child.stdin.close()
            for line in child.stdout:
                if held is not None and held.add(line):
                    raise UsageError(f"The first rows of {file} are more than can be held at once. Ask for fewer.")
                kind, value = json.loads(line)
                if kind == "error":
                    raise DatasetError(value)
                yield kind, value
        except BrokenPipeError:  # it could not start
            raise _too_much(file) from None
        finally:
            child.kill()


@contextmanager
def _place() -> Iterator[None]:
    if not _places.acquire(timeout=WAIT_SECONDS):
        raise UsageError("Others have large files read at the moment. Try again, or upload the rows as .jsonl.")
    try:
        yield
    finally:
        _places.release()


def _too_much(file: Path) -> DatasetError:
    return DatasetError(f"{file} takes too much memory or time to be read at once. Upload it as .jsonl.")
