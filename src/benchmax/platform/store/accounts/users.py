"""Users: found and created by address, listed for administrators, and removed: credentials stop working at once."""

from __future__ import annotations

import time

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store import tables
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import Run, User


def ensure_user(db: Session, email: str, role: str = "member") -> User:
    """The user of that address, created if there is none."""
    found = by_email(db, email)
    if found is None:
        found = User(email=email.strip().lower(), role=role)
        db.add(found)
        db.flush()
    return found


def by_email(db: Session, email: str) -> User | None:
    return db.scalars(select(User).where(User.email == email.strip().lower())).one_or_none()


def has_password(db: Session, user_id: str) -> bool:
    user = db.get(User, user_id)
    return user is not None and user.password_hash is not None


def set_password_hash(db: Session, user_id: str, hashed: str) -> None:
    db.execute(update(User).where(User.id == user_id).values(password_hash=hashed))


def any_password(db: Session) -> bool:
    """Whether someone can sign in by password: what a server beyond loopback needs."""
    return db.scalars(select(User.id).where(User.password_hash.is_not(None)).limit(1)).first() is not None


def everyone(db: Session, only: str | None = None) -> list[tuple[User, int]]:
    """Users with the number of their runs, oldest first; only one when named."""
    count = select(func.count()).where(Run.owner_id == User.id, Run.deleted.is_(None)).scalar_subquery()
    query = select(User, count).where(User.deleted.is_(None))
    if only is not None:
        query = query.where(User.id == only)
    return [(user, count) for user, count in db.execute(query.order_by(User.created, User.id))]


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
