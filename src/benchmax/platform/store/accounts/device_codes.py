"""Sign-in by device code: a code shown on one machine is confirmed in a browser on another."""

from __future__ import annotations

import secrets
import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.platform.store.accounts.tokens import create_token, digest
from benchmax.platform.store.statements import get_locked
from benchmax.platform.store.tables import DeviceCode

DEVICE_SECONDS = 1_800
DEVICE_INTERVAL = 5
# No vowels, no digits that look like letters: a code to be read aloud.
_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def create_device_code(db: Session, client_id: str, address: str = "") -> tuple[str, DeviceCode]:
    """The device's secret code, and the row with the code its user types."""
    letters = "".join(secrets.choice(_CODE_LETTERS) for _ in range(8))
    columns = {"user_code": f"{letters[:4]}-{letters[4:]}", "client_id": client_id, "address": address[:80]}
    token, row = create_token(db, DeviceCode, DEVICE_SECONDS, **columns)
    db.flush()
    return token, row


def poll_device_code(db: Session, token: str, client_id: str) -> str | DeviceCode:
    """The approved row, taken out of the table; or an OAuth error code."""
    row = get_locked(db, DeviceCode, digest(token))
    now = time.time()
    if row is None or row.client_id != client_id:
        return "invalid_grant"
    too_soon = now - row.polled < DEVICE_INTERVAL * 0.8
    row.polled = now
    if row.expires <= now or row.denied or row.user_id is not None:
        db.delete(row)
        return "expired_token" if row.expires <= now else "access_denied" if row.denied else row
    return "slow_down" if too_soon else "authorization_pending"


def find_user_code(db: Session, user_code: str) -> DeviceCode | None:
    """The waiting device of that code, however it was typed."""
    letters = "".join(letter for letter in user_code.upper() if letter.isalpha())
    query = select(DeviceCode).where(DeviceCode.user_code == f"{letters[:4]}-{letters[4:]}")
    row = db.scalars(query).one_or_none()
    return row if row is not None and row.expires > time.time() and row.user_id is None and not row.denied else None
