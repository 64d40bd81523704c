"""A large file as a stream of bytes that can be taken up again: plain, or compressed with bzip2.

A plain file is read on from any place. Of a bzip2 file, only the starts of its streams can be: a dump made of many
streams goes on near the place, one made of a single stream is decompressed again up to it.
"""

from __future__ import annotations

import bz2
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from benchmax.errors import UsageError

CHUNK = 1 << 20
_MAGIC = b"BZh"


class Restart(NamedTuple):
    """A place where reading may begin: in the file, and in what it holds."""

    in_file: int = 0
    in_content: int = 0


class ByteStream:
    """The content of a file from a place on. `position` is how far the file itself was read."""

    def __init__(self, path: Path, restart: Restart = Restart(), skip_to: int = 0) -> None:
        self.path, self._restart, self._skip_to = path, restart, skip_to
        self.size = path.stat().st_size
        self.position = restart.in_file
        self._starts = deque([restart])

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            compressed = file.read(len(_MAGIC)) == _MAGIC
            yield from self._decompressed(file) if compressed else self._plain(file)

    def restart_before(self, offset: int) -> Restart:
        """The last place before an offset of the content where reading may begin."""
        while len(self._starts) > 1 and self._starts[1].in_content <= offset:
            self._starts.popleft()
        return self._starts[0]

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        file.seek(self._skip_to)
        while data := file.read(CHUNK):
            self.position = file.tell()
            yield data

    def _decompressed(self, file: BinaryIO) -> Iterator[bytes]:
        file.seek(self._restart.in_file)
        at = self._restart.in_content
        for data in self._streams(file, at):
            skipped = min(len(data), max(0, self._skip_to - at))
            at += len(data)
            if skipped < len(data):
                yield data[skipped:]

    def _streams(self, file: BinaryIO, at: int) -> Iterator[bytes]:
        """What the streams hold, one after the other, in pieces of bounded size."""
        reader, left, begun = bz2.BZ2Decompressor(), b"", False
        while True:
            given = left if left or not reader.needs_input else file.read(CHUNK)
            if not given and reader.needs_input:
                if begun:
                    raise UsageError(f"{self.path.name} ends in the middle. Download it again, then go on.")
                return
            try:
                data = reader.decompress(given, CHUNK)
            except OSError as error:
                raise UsageError(f"{self.path.name} is damaged: {error}. Download it again.") from None
            left, begun = b"", True
            at += len(data)
            self.position = file.tell()
            if reader.eof:
                left, reader, begun = reader.unused_data, bz2.BZ2Decompressor(), False
                self._starts.append(Restart(file.tell() - len(left), at))
            if data:
                yield data
