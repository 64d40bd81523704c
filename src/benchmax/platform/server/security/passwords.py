"""Passwords: argon2id, one answer for every failure, a lock after `lockout.LOCK_FAILURES` of them."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused
from benchmax.platform.store.accounts import lockout, users
from benchmax.platform.store.database import Database

_hasher = PasswordHasher()
FEWEST_CHARS = 10


def hash_password(password: str) -> str:
    """The hash of a password; UsageError for one that is too short."""
    if not FEWEST_CHARS <= len(password) <= 1000:
        raise UsageError(f"A password has {FEWEST_CHARS} to 1,000 characters. Choose another.")
    return _hasher.hash(password)


def check_password(database: Database, email: str, password: str, address: str) -> str:
    """The user's id; Refused, with the same message and in the same time, for an unknown user and a wrong password."""
    account = email.strip().lower()[:320]
    with database.read() as db:
        locked = lockout.locked(db, account, address)
        user = users.by_email(db, account)
    if locked:
        seconds = lockout.LOCK_SECONDS
        raise Refused(429, f"Too many wrong passwords. Try again in {seconds // 60} minutes.", Retry_After=str(seconds))
    hashed = user.password_hash if user else None
    good = _verify(hashed or _nobody(), password[:1000]) and hashed is not None
    with database.write() as db:
        if good and user is not None:
            lockout.clear_failures(db, account, address)
            return user.id
        lockout.add_failure(db, account, address)
    raise Refused(401, "The address or the password is wrong.")


def _verify(hashed: str, password: str) -> bool:
    try:
        return _hasher.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobody() -> str:
    """A hash to spend the same time on when there is no user."""
    return _hasher.hash("nobody")
