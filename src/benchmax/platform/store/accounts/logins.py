"""Logins of browsers, and the one-time links that open them."""

from __future__ import annotations

import time

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.accounts.tokens import create_token, digest
from benchmax.platform.store.statements import changed_rows, get_locked
from benchmax.platform.store.tables import DeviceCode, Login, LoginLink, User

LINK_SECONDS = 15 * 60.0
LOGIN_SECONDS = 7 * 86_400.0
IDLE_SECONDS = 12 * 3_600.0
# Asked with every request, so built once: building costs several times what running does.
_LOGIN = select(Login, User).join(User, User.id == Login.user_id).where(Login.digest == bindparam("digest"))


def create_link(db: Session, user_id: str, seconds: float = LINK_SECONDS) -> str:
    """The token of a link that signs its bearer in, once."""
    return create_token(db, LoginLink, seconds, user_id=user_id)[0]


def use_link(db: Session, token: str) -> str | None:
    """The id of the user the link signs in; it works once."""
    link = get_locked(db, LoginLink, digest(token))
    if link is None:
        return None
    db.delete(link)
    return link.user_id if link.expires > time.time() else None


def open_login(db: Session, user_id: str) -> str:
    """A new login's token; always a fresh one, so a planted cookie is worth nothing."""
    return create_token(db, Login, LOGIN_SECONDS, user_id=user_id)[0]


def find_login(db: Session, token: str) -> tuple[Login, User] | None:
    """The valid login and its user: 7 days at most, 12 hours without use."""
    found = db.execute(_LOGIN, {"digest": digest(token)}).one_or_none()
    if found is None:
        return None
    login = found[0]
    return found if time.time() < min(login.expires, login.last_seen + IDLE_SECONDS) else None


def touch_login(db: Session, found: Login) -> None:
    db.execute(update(Login).where(Login.digest == found.digest).values(last_seen=time.time()))


def close_login(db: Session, token: str) -> None:
    db.execute(delete(Login).where(Login.digest == digest(token)))


def sign_out(db: Session, user_id: str, *, but: str | None = None) -> int:
    """End every login of a user, and links and device codes not used yet; `but` is the token of one that stays."""
    for table in (LoginLink, DeviceCode):
        db.execute(delete(table).where(table.user_id == user_id))
    open_ones = delete(Login).where(Login.user_id == user_id)
    if but is not None:
        open_ones = open_ones.where(Login.digest != digest(but))
    return changed_rows(db, open_ones)
