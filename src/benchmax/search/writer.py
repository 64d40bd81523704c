"""Writing an index, so that a killed build goes on where it was.

The file is written as `NAME.building` and renamed when it is complete: under its own name an index is always whole.
Documents and the place in their source are committed together. One process at a time writes, with the lock of
`NAME.lock`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmax.errors import UsageError
from benchmax.files.locks import lock_file
from benchmax.search import schema
from benchmax.search.types import Document

BUILDING, LOCK = ".building", ".lock"
BATCH_DOCUMENTS = 2_000
BATCH_BYTES = 16 << 20
"""Text that is written at once; what a kill costs, and what is held in memory."""
CACHE_KIB = 65_536
_PAUSE = 0.05
"""Seconds between two looks at a lock."""


class IndexWriter(AbstractContextManager["IndexWriter"]):
    """Adds documents to an index that is being built.

    `source` says what the index is built from: a build that was cut off goes on only with the same source, and one of
    another source starts again. `wait` are the seconds for which another process may go on building before that is a
    UsageError.
    """

    def __init__(self, path: str | Path, source: str, *, update: bool = False, wait: float = 0.0) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.building = self.path.with_name(self.path.name + BUILDING)
        self._pending = self._pending_bytes = 0
        self._lock_path = self.path.with_name(self.path.name + LOCK)
        self._lock: int | None = self._locked(wait)
        try:
            if update and self.path.exists() and not self.building.exists():
                shutil.copyfile(self.path, self.building)
            self._connection = self._continued(source) or self._started(source)
        except BaseException:
            self._unlock()
            raise
        self.place: dict[str, Any] = schema.get_meta(self._connection, "place") or {}
        """Where in its source the build stands, as it was last committed."""

    # Adding

    def add(self, document: Document, file: str | None = None, stamp: str | None = None) -> None:
        """Add a document; one with its id is replaced."""
        self._remove("id", document.id)
        schema.insert(self._connection, document, file, stamp)
        self._pending += 1
        self._pending_bytes += len(document.content)

    def remove_file(self, file: str) -> None:
        """Take the documents of a file out."""
        self._pending += self._remove("file", file)

    def redirect(self, title: str, target: str) -> None:
        """Let a title lead to another article."""
        keys = schema.title_key(title), schema.title_key(target)
        if keys[0] != keys[1]:
            self._connection.execute("INSERT OR REPLACE INTO redirects VALUES (?, ?)", keys)
            self._pending += 1

    def stamps(self) -> dict[str, str]:
        """The stamp of every file whose documents are here."""
        return schema.get_stamps(self._connection)

    def count(self) -> int:
        """Documents so far."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def _remove(self, column: str, value: str) -> int:
        found = self._connection.execute(f"SELECT n, title, content FROM documents WHERE {column} = ?", (value,))
        rows = found.fetchall()
        for row in rows:
            # A table of words that keeps no texts needs the text of what it is to forget.
            self._connection.execute("INSERT INTO words (words, rowid, title, content) VALUES ('delete', ?, ?, ?)", row)
            self._connection.execute("DELETE FROM documents WHERE n = ?", row[:1])
        return len(rows)

    @property
    def batch_is_full(self) -> bool:
        return self._pending >= BATCH_DOCUMENTS or self._pending_bytes >= BATCH_BYTES

    def commit(self, place: dict[str, Any]) -> None:
        """Keep what was added, and where in the source that was."""
        schema.set_meta(self._connection, "place", place)
        self._connection.commit()
        self.place, self._pending, self._pending_bytes = place, 0, 0

    # The file

    def finish(self) -> Path:
        """Put the words in order and the index in its place."""
        self._connection.execute("INSERT INTO words (words) VALUES ('optimize')")
        self._connection.commit()
        self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        self.building.replace(self.path)
        return self.path

    def close(self) -> None:
        """Leave the build as it was last committed."""
        self._connection.close()
        self._unlock()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _locked(self, wait: float) -> int:
        deadline = time.monotonic() + wait
        while True:
            try:
                lock = lock_file(self._lock_path)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise UsageError(
                        f"Another process is building {self.path}. Try again when it is done, or name another file."
                    ) from None
                time.sleep(_PAUSE)
                continue
            if _is_at(lock, self._lock_path):
                return lock
            os.close(lock)  # its holder was done, and removed it

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _continued(self, source: str) -> sqlite3.Connection | None:
        """The build that was cut off, if it is one of the same source."""
        if not self.building.exists():
            return None
        connection: sqlite3.Connection | None = None
        try:
            connection = self._connect()
            known = schema.get_meta(connection, "version"), schema.get_meta(connection, "source")
            if known == (schema.VERSION, source):
                return connection
        except sqlite3.DatabaseError:
            pass
        if connection is not None:  # no index, one that was not even begun, or one of another source
            connection.close()
        return None

    def _started(self, source: str) -> sqlite3.Connection:
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.building}{ending}").unlink(missing_ok=True)
        connection = self._connect()
        schema.create(connection)
        schema.set_meta(connection, "source", source)
        connection.commit()
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.building)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
