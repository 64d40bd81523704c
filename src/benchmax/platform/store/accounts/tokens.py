"""Tokens of which only the digest is stored, in rows that expire."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any, TypeVar

from sqlalchemy import delete
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import DeviceCode, Login, LoginLink, Upload

Token = TypeVar("Token", DeviceCode, Login, LoginLink, Upload)
TOUCH_SECONDS = 60.0
"""The shortest time between two updates of when a key or login was last used."""


def digest(token: str) -> str:
    """SHA-256, as kept. A token has 256 random bits, so no salt or slow hash is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(db: Session, table: type[Token], seconds: float, **columns: Any) -> tuple[str, Token]:
    """A new token and its row, which expires after so long; rows that have expired are deleted."""
    now, token = time.time(), secrets.token_urlsafe(32)
    db.execute(delete(table).where(table.expires <= now))
    row = table(digest=digest(token), expires=now + seconds, **columns)
    db.add(row)
    return token, row


def needs_touch(last_used: float | None) -> bool:
    """Whether the recorded last use is old enough to be updated."""
    return time.time() - (last_used or 0.0) > TOUCH_SECONDS
