"""Opening the database: SQLite in the data directory by default, PostgreSQL by URL, the same code for both.

    database = open_database(DataDir().create())
    with database.read() as db: …
    with database.write() as db: …     # one transaction, committed at the end

SQLite runs in WAL mode: readers never wait, and a writer takes its place in the queue at once (`BEGIN IMMEDIATE`)
instead of failing in the middle.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from benchmax import extras
from benchmax.errors import UsageError
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.schema_version import WRITES, check_revision, upgrade

BUSY_SECONDS = 30.0
IDLE_SECONDS = 1.0
CHECKED_BYTES = 256 * 1024 * 1024
"""A file up to this size is read whole before it is used: damage is reported at the start, not during a run."""


class Database:
    """An open database. Threads may share it; processes open their own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        # PostgreSQL takes a snapshot for every statement anyhow: without BEGIN and ROLLBACK a read is one round trip.
        self._reader = engine if self.is_sqlite else engine.execution_options(isolation_level="AUTOCOMMIT")

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session to read from, one snapshot on SQLite; nothing is written."""
        with Session(self._reader, expire_on_commit=False, autoflush=False) as db:
            yield db

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction: committed when the block ends, rolled back when it raises. Keep it short."""
        with Session(self._writer, expire_on_commit=False) as db, db.begin():
            yield db

    def close(self) -> None:
        self.engine.dispose()


def open_database(data: DataDir, url: str | None = None, *, migrate: bool = True) -> Database:
    """The database of a data directory, migrated to this version's tables unless `migrate` is off."""
    engine = make_engine(url or f"sqlite:///{data.database}")
    try:
        if migrate:
            _check_whole(engine)
            upgrade(engine)
        else:
            check_revision(engine)
    except DatabaseError as error:
        engine.dispose()
        raise UsageError(
            f"The database {engine.url!r} cannot be used: {error.orig}. Check that it is there, writable and not "
            "damaged; `benchmax backup` makes copies to restore from."
        ) from None
    except BaseException:
        engine.dispose()
        raise
    return Database(engine)


def _check_whole(engine: Engine) -> None:
    """Raise for a damaged file."""
    path = Path(engine.url.database or "")
    if engine.dialect.name != "sqlite" or not path.is_file() or path.stat().st_size > CHECKED_BYTES:
        return
    with engine.connect() as connection:
        said = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if said != "ok":
        raise UsageError(
            f"The database {path} is damaged: {said}. Restore a copy that `benchmax backup` made, or move it away and "
            "rebuild what is known of runs with `benchmax reindex`."
        )


def make_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() != "sqlite":
            engine = create_engine(parsed, pool_size=10, max_overflow=30)
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "checkout", _check_idle)
            return engine
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        # The message may quote a piece of the password when the address was parsed wrongly.
        misread = "its port is no number, or its password has signs that must be written as %XX"
        why = misread if isinstance(error, ValueError) else error
        raise UsageError(
            f"{url.partition('://')[0]}://… cannot be opened: {why}. Give sqlite:///file.db or "
            f"postgresql://user@host/name (needs `{extras.install('postgres')}`)."
        ) from None
    if parsed.database and parsed.database != ":memory:":
        _make_private(Path(parsed.database))
    engine = create_engine(parsed, connect_args={"timeout": BUSY_SECONDS}, pool_size=10, max_overflow=30)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_private(path: Path) -> None:
    """Only the owner may read the file. SQLite gives the WAL beside it the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise UsageError(f"Cannot open the database {path}: {error.strerror}. Check the path and its mode.") from None


def _note_use(_: Any, record: ConnectionPoolEntry) -> None:
    record.info["used"] = time.monotonic()


def _check_idle(connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
    """Check a connection that was idle: the database may have been restarted."""
    if time.monotonic() - record.info.get("used", float("inf")) > IDLE_SECONDS:
        try:
            connection.execute("")
            connection.rollback()
        except Exception as error:  # whatever the driver calls it
            raise InvalidatePoolError from error


def _configure_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    # The driver's own transactions begin late and end before DDL; `_begin_sqlite` does it instead.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout={int(BUSY_SECONDS * 1000)}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        "temp_store=MEMORY",
        "cache_size=-32000",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
