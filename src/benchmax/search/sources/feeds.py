"""Where the documents of an index come from. A feed can be left at any entry and taken up again at its place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmax import limits
from benchmax.search.sources.plain_text import ENDINGS, decoded, read_text
from benchmax.search.types import Document


@dataclass(frozen=True, slots=True)
class Entry:
    """What one article, redirect or file adds to an index."""

    place: dict[str, Any]
    """Where to go on after it."""
    position: int
    """How far that is, out of the feed's total."""
    document: Document | None = None
    redirect: tuple[str, str] | None = None
    file: str | None = None
    """The file of a folder; what was known of it before is replaced."""
    stamp: str | None = None


class Feed(Protocol):
    """A source of documents."""

    identity: str
    """What a build must have in common with one it goes on with."""
    updates: bool
    """Whether an index of it can be brought up to date, instead of being built anew."""
    total: int
    """The last `position`; 0 when it is not known."""
    skipped: int
    """How many articles or files could not be read so far."""

    def entries(self, place: Mapping[str, Any], stamps: Mapping[str, str]) -> Iterator[Entry]:
        """Those after a place; `stamps` are of the files that are known."""


@dataclass(slots=True)
class FolderFeed:
    """The text files of a folder. Their ids are their paths below it, so an index says nothing about the machine.

    Files that did not change since they were indexed are passed over; those that have gone, or cannot be read any more,
    are taken out.
    """

    folder: Path
    identity: str = "folder"
    updates: bool = True
    total: int = 0
    skipped: int = 0

    def entries(self, place: Mapping[str, Any], stamps: Mapping[str, str]) -> Iterator[Entry]:
        files = {self._name(path): path for path in sorted(_text_files(self.folder), key=Path.as_posix)}
        self.total, self.skipped = len(files), 0
        for gone in sorted(stamps.keys() - files.keys()):
            yield Entry({}, 0, file=gone)
        for number, (name, path) in enumerate(files.items(), 1):
            data = self._read(path)
            if data is None:
                if name in stamps:
                    yield Entry({}, number, file=name)
                continue
            stamp = hashlib.sha256(data).hexdigest()
            if stamps.get(name) == stamp:
                continue
            title, content = read_text(name, decoded(data))
            yield Entry({}, number, Document(name, title, content), file=name, stamp=stamp)

    def _name(self, path: Path) -> str:
        """A file's path below the folder; a byte of it that is not UTF-8 is written as an escape."""
        return path.relative_to(self.folder).as_posix().encode("utf-8", "backslashreplace").decode()

    def _read(self, path: Path) -> bytes | None:
        """The file; None for one that is too large or cannot be read."""
        try:
            if path.stat().st_size <= limits.INDEX_FILE_BYTES:
                return path.read_bytes()
        except OSError:
            pass
        self.skipped += 1
        return None


def _text_files(folder: Path) -> Iterator[Path]:
    """Below a folder, hidden ones and those behind links left out."""
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(here, name)
            if path.suffix.lower() in ENDINGS and not name.startswith(".") and not path.is_symlink():
                yield path
