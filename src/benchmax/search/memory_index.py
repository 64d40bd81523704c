"""An index in memory, for few or generated texts. It has no file, and every process has its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmax.search import schema
from benchmax.search.index import Index
from benchmax.search.types import Document


class MemoryIndex(Index):
    """Searches the documents that it is given."""

    def __init__(self, documents: Iterable[Document] = (), *, content: bytes | None = None) -> None:
        super().__init__(Path(":memory:"))
        self._content = _built(documents) if content is None else content

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.deserialize(self._content)
        return connection

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._content,)


def _restored(content: bytes) -> MemoryIndex:
    return MemoryIndex(content=content)


def _built(documents: Iterable[Document]) -> bytes:
    connection = sqlite3.connect(":memory:")
    schema.create(connection)
    for document in documents:
        schema.insert(connection, document)
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content
