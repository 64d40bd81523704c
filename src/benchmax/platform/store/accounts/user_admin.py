"""Users as an administrator sees them, and how one is removed: their credentials stop working at once."""

from __future__ import annotations

import time

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from benchmax.platform.store import tables
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import Run, User


def everyone(db: Session, only: str | None = None) -> list[tuple[User, int]]:
    """Users with the number of their runs, oldest first; only one when named."""
    count = select(func.count()).where(Run.owner_id == User.id, Run.deleted.is_(None)).scalar_subquery()
    query = select(User, count).where(User.deleted.is_(None))
    if only is not None:
        query = query.where(User.id == only)
    return [(user, count) for user, count in db.execute(query.order_by(User.created, User.id))]


def find(db: Session, user_id: str) -> User | None:
    """The user, unless removed."""
    return get_if(db, User, user_id, deleted=None)


def remove(db: Session, user: User) -> None:
    """Remove a user's credentials and data, and mark their runs for deletion.

    The row stays: runs are removed by the runner, later. So do the bytes of files, until no path names them.
    """
    for table in (tables.ApiKey, tables.Login, tables.LoginLink, tables.DeviceCode):
        db.execute(delete(table).where(table.user_id == user.id))
    _remove_things(db, user.id)
    for run_id in db.scalars(select(Run.id).where(Run.owner_id == user.id, Run.deleted.is_(None))).all():
        jobs.drop_queued(db, run_id)
        runs.mark_deleted(db, run_id)
    user.email, user.password_hash, user.deleted = f"removed {user.id}", None, time.time()


def forget_removed(db: Session) -> None:
    """Remove what is left of users whom an earlier version removed."""
    for user_id in db.scalars(select(User.id).where(User.deleted.is_not(None))).all():
        _remove_things(db, user_id)


def _remove_things(db: Session, user_id: str) -> None:
    owned = (
        tables.Upload,
        tables.BlobPath,
        tables.Corpus,
        tables.Endpoint,
        tables.Webhook,
        tables.Secret,
        tables.OneOffJob,
    )
    for table in owned:
        db.execute(delete(table).where(table.owner_id == user_id))
