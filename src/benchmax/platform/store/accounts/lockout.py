"""After how many failed passwords an account is locked, and for how long. The hashing is the server's."""

from __future__ import annotations

import time

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import LoginFailure

LOCK_FAILURES = 10
LOCK_SECONDS = 15 * 60


def locked(db: Session, account: str, address: str) -> bool:
    """Whether this account had too many failures from this address lately."""
    query = select(func.count()).where(
        LoginFailure.account == account, LoginFailure.address == address, LoginFailure.time > time.time() - LOCK_SECONDS
    )
    return (db.scalar(query) or 0) >= LOCK_FAILURES


def add_failure(db: Session, account: str, address: str) -> None:
    db.execute(delete(LoginFailure).where(LoginFailure.time < time.time() - LOCK_SECONDS))
    db.add(LoginFailure(account=account, address=address))


def clear_failures(db: Session, account: str, address: str) -> None:
    db.execute(delete(LoginFailure).where(LoginFailure.account == account, LoginFailure.address == address))
