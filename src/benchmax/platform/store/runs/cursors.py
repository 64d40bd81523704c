"""How far each file of a run directory was read. Moved in the transaction of what was read: no gap, no double."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import Cursor


def of_run(db: Session, run_id: str) -> dict[str, Cursor]:
    """All cursors of a run by file name, relative to the run directory."""
    return {cursor.file: cursor for cursor in db.scalars(select(Cursor).where(Cursor.run_id == run_id))}


def move(db: Session, run_id: str, file: str, offset: int, inode: int = 0) -> None:
    """Remember that `file` was read up to `offset`; a new inode means that it was replaced."""
    db.merge(Cursor(run_id=run_id, file=file, offset=offset, inode=inode))


def forget(db: Session, run_id: str, file: str | None = None) -> None:
    """Read a file, or all of them, from the start again."""
    query = delete(Cursor).where(Cursor.run_id == run_id)
    db.execute(query if file is None else query.where(Cursor.file == file))
