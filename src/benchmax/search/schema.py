"""The file of an index: one SQLite database.

meta        key, value: the version of this layout, what it is built from, where that build stands
documents   n, id, title, content, metadata (JSON), key (the title as it is looked up), file and stamp (of a folder's)
redirects   key, target: another title of an article
words       FTS5 over title and content of documents, whose texts it does not keep a second time
"""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from pathlib import Path
from typing import Any

from benchmax.errors import NotFoundError, RecordError
from benchmax.search.types import Document

VERSION = 1
TOKENIZER = "porter unicode61 remove_diacritics 2"
"""Words by Unicode, without accents, English endings cut off."""
_SPACES = re.compile(r"[\s_]+")

TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, content TEXT NOT NULL,
  metadata TEXT NOT NULL, key TEXT NOT NULL, file TEXT, stamp TEXT
);
CREATE INDEX documents_key ON documents (key);
CREATE INDEX documents_file ON documents (file) WHERE file IS NOT NULL;
CREATE TABLE redirects (key TEXT PRIMARY KEY, target TEXT NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (
  title, content, content='documents', content_rowid='n', tokenize='{TOKENIZER}'
);
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, all or none."""
    connection.executescript(f"BEGIN;{TABLES}COMMIT;")
    set_meta(connection, "version", VERSION)


def insert(
    connection: sqlite3.Connection, document: Document, file: str | None = None, stamp: str | None = None
) -> None:
    """Add a document; `file` and its `stamp` say where it is from."""
    values = (document.title, document.content)
    metadata = json.dumps(dict(document.metadata), ensure_ascii=False, allow_nan=False)
    row = connection.execute(
        "INSERT INTO documents (id, title, content, metadata, key, file, stamp) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (document.id, *values, metadata, title_key(document.title), file, stamp),
    )
    connection.execute("INSERT INTO words (rowid, title, content) VALUES (?, ?, ?)", (row.lastrowid, *values))


def title_key(title: str) -> str:
    """A title as it is looked up: without regard to case, and with spaces for underscores."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", title)).strip().casefold()


def get_meta(connection: sqlite3.Connection, key: str) -> Any:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else json.loads(row[0])


def set_meta(connection: sqlite3.Connection, key: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def get_stamps(connection: sqlite3.Connection) -> dict[str, str]:
    """The stamp of every file whose documents are here."""
    return dict(connection.execute("SELECT DISTINCT file, stamp FROM documents WHERE file IS NOT NULL").fetchall())


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; any thread may close it."""
    if not path.is_file():
        raise NotFoundError(f"There is no index {path}. Build one: benchmax wikipedia index SOURCE --out {path.name}")
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    try:
        version = get_meta(connection, "version")
    except sqlite3.DatabaseError:
        version = None
    if version != VERSION:
        connection.close()
        raise RecordError(
            f"{path} is no index that this benchmax can read. Give a folder of texts, or build an index "
            f"from its source: benchmax wikipedia index SOURCE --out {path.stem}.sqlite"
        )
    connection.execute("PRAGMA query_only = 1")
    connection.execute(f"PRAGMA mmap_size = {1 << 30}")
    return connection
