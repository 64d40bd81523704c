"""Output that survives its reader: `benchmax train … | head` must not end the training."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextmanager
def ignoring_broken_pipes() -> Iterator[None]:
    """Drop what is printed after its reader has gone."""
    with redirect_stdout(_lasting(sys.stdout)) as out, redirect_stderr(_lasting(sys.stderr)) as err:
        try:
            yield
        finally:
            out.flush()
            err.flush()


def _lasting(stream: TextIO | None) -> TextIO:
    """The stream, or for a pipe one that outlives the reader."""
    if stream is None:  # closed before the program began
        return open(os.devnull, "w")
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty() or not _has_file(stream):
        return stream
    raw = _Pipe(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _has_file(stream: TextIO) -> bool:
    try:
        return stream.fileno() >= 0
    except io.UnsupportedOperation:
        return False


class _Pipe(io.FileIO):
    """Writes to the null device once its reader has gone."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            return memoryview(data).nbytes
