"""How far each file of a run directory was read. Moved in the transaction of what was read: no gap, no double."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from benchmax.platform.store.statements import upsert
from benchmax.platform.store.tables import Cursor, Run


def of_run(db: Session, run_id: str) -> dict[str, tuple[int, int]]:
    """Offset and fingerprint of each file that was read, by its name relative to the run directory."""
    return {each.file: (each.offset, each.inode) for each in db.scalars(select(Cursor).where(Cursor.run_id == run_id))}


def locked_offsets(db: Session, run_id: str, files: Sequence[str]) -> dict[str, int]:
    """How far these files were read. Another reader of the run waits until this transaction ends."""
    db.execute(select(Run.id).where(Run.id == run_id).with_for_update())
    query = select(Cursor.file, Cursor.offset).where(Cursor.run_id == run_id, Cursor.file.in_(files))
    return dict(db.execute(query).all())


def move(db: Session, run_id: str, read: Mapping[str, tuple[int, int]]) -> None:
    """Remember offset and fingerprint of each file; another fingerprint means that it was replaced."""
    rows = [
        {"run_id": run_id, "file": file, "offset": offset, "inode": fingerprint}
        for file, (offset, fingerprint) in read.items()
    ]
    upsert(db, Cursor, rows, key=("run_id", "file"))


def forget(db: Session, run_id: str, file: str) -> None:
    """Read a file from the start again."""
    db.execute(delete(Cursor).where(Cursor.run_id == run_id, Cursor.file == file))
