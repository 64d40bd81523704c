"""Users: found and created by address, with a password or none."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import User


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
