"""When keys and sessions were last used, written by a thread of its own: no request waits for a write."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from benchmax.platform.store.database import Database

log = structlog.get_logger("benchmax.server")

_Note = tuple[Database, Callable[[Session], None]]

_lock = threading.Lock()
_waiting: dict[str, _Note] = {}
_writing = False


def note(database: Database, name: str, write: Callable[[Session], None]) -> None:
    """Record the use of a key or login soon; the same use is written once, however often it is noted."""
    global _writing
    with _lock:
        _waiting.setdefault(name, (database, write))
        if _writing:
            return
        _writing = True
    threading.Thread(target=_write_all, name="last uses", daemon=True).start()


def _write_all() -> None:
    global _writing
    while True:
        with _lock:
            if not _waiting:
                _writing = False
                return
            name, (database, write) = next(iter(_waiting.items()))
        try:
            with database.write() as db:
                write(db)
        except SQLAlchemyError as error:  # the database is busy or gone: the next request notes it again
            log.warning("last use not noted", error=str(getattr(error, "orig", error)))
        with _lock:
            _waiting.pop(name, None)
