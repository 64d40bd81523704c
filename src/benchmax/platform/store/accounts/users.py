"""Users, their API keys, sign-in links, logins and device codes. Only digests of the credentials are stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.platform.store.statements import changed_rows, get_if, get_locked
from benchmax.platform.store.tables import ApiKey, DeviceCode, Login, LoginFailure, LoginLink, Upload, User
from benchmax.platform.wire.values import SCOPES

Token = TypeVar("Token", DeviceCode, Login, LoginLink, Upload)

LINK_SECONDS = 15 * 60.0
LOGIN_SECONDS = 7 * 86_400.0
IDLE_SECONDS = 12 * 3_600.0
DEVICE_SECONDS = 1_800
DEVICE_INTERVAL = 5
LOCK_FAILURES = 10
LOCK_SECONDS = 15 * 60
_USED_EVERY = 60.0
# No vowels, no digits that look like letters: a code to be read aloud.
_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"

_KEY_TEXT = re.compile(r"sk_[0-9a-f]{8}_[\w-]{43}", re.ASCII)

# Asked with every request, so built once: building costs several times what running does.
_KEY = select(ApiKey, User).join(User, User.id == ApiKey.user_id).where(ApiKey.digest == bindparam("digest"))
_LOGIN = select(Login, User).join(User, User.id == Login.user_id).where(Login.digest == bindparam("digest"))


def digest(token: str) -> str:
    """SHA-256, as kept. A token has 256 random bits, so no salt or slow hash is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


# Users


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


# API keys


def create_key(
    db: Session,
    user_id: str,
    *,
    name: str = "",
    scopes: Sequence[str] = ("read", "write"),
    days: float | None = None,
    parent: ApiKey | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its text, `sk_<8>_<43>`: shown now and never again.

    One that another key makes is no stronger than that one, does not outlive it, and is revoked with it.
    """
    if not scopes or set(scopes) - set(SCOPES if parent is None else parent.scopes):
        raise UsageError(f"Scopes are {', '.join(SCOPES)}. Give one or more of those you have yourself.")
    ends = [] if days is None else [time.time() + days * 86_400]
    if parent is not None and parent.expires is not None:
        ends.append(parent.expires)
    prefix = secrets.token_hex(4)
    text = f"sk_{prefix}_{secrets.token_urlsafe(32)}"
    row = ApiKey(
        user_id=user_id,
        name=name,
        prefix=prefix,
        digest=digest(text),
        scopes=sorted(set(scopes)),
        expires=min(ends, default=None),
        parent_id=None if parent is None else parent.id,
    )
    db.add(row)
    db.flush()
    return row, text


def find_key(db: Session, text: str) -> tuple[ApiKey, User] | None:
    """The valid key with this text, and its user. Looked up by digest, so timing reveals nothing about keys."""
    found = db.execute(_KEY, {"digest": digest(text)}).one_or_none()
    return found if found is not None and works(found[0]) else None


def works(key: ApiKey) -> bool:
    """Whether a key is neither revoked nor expired."""
    return key.revoked is None and (key.expires or float("inf")) > time.time()


def refuse_own_key(db: Session, base_url: str, api_key: str) -> None:
    """UsageError when a key of this platform, also one that no longer works, would be sent to another server."""
    found = [digest(each) for each in _KEY_TEXT.findall(f"{api_key} {base_url}")]
    if found and db.scalars(select(ApiKey.id).where(ApiKey.digest.in_(found))).first() is not None:
        raise UsageError(
            f"The key is this platform's own and is not sent to {urlsplit(base_url).hostname or 'another server'}. "
            "Give that server's own key, or leave the address out to use the platform's models."
        )


def needs_touch(key: ApiKey) -> bool:
    """Whether `last_used` is old enough to be worth a write."""
    return time.time() - (key.last_used or 0.0) > _USED_EVERY


def touch_key(db: Session, key_id: str) -> None:
    db.execute(update(ApiKey).where(ApiKey.id == key_id).values(last_used=time.time()))


def keys_of(db: Session, user_id: str) -> list[ApiKey]:
    return list(db.scalars(select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.created.desc())))


def revoke_key(db: Session, user_id: str, key_id: str) -> ApiKey | None:
    """Revoke a user's key for good, with every key it made; None when the user has no such key."""
    key = get_if(db, ApiKey, key_id, user_id=user_id)
    if key is None:
        return None
    keys = keys_of(db, user_id)
    ending = [key]
    for each in ending:
        each.revoked = each.revoked or time.time()
        ending += [made for made in keys if made.parent_id == each.id]
    return key


# Sign-in: one-time links, logins


def create_token(db: Session, table: type[Token], seconds: float, **columns: Any) -> tuple[str, Token]:
    """A new token and its row, which expires after so long; rows that have expired are deleted."""
    now, token = time.time(), secrets.token_urlsafe(32)
    db.execute(delete(table).where(table.expires <= now))
    row = table(digest=digest(token), expires=now + seconds, **columns)
    db.add(row)
    return token, row


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


def login_needs_touch(found: Login) -> bool:
    return time.time() - found.last_seen > _USED_EVERY


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


def revoke_all(db: Session, user_id: str, *, but: str | None = None) -> int:
    """Revoke every key of a user that works, save one and the keys it comes from."""
    keys = {key.id: key for key in keys_of(db, user_id)}
    kept: set[str] = set()
    while but in keys:
        kept.add(but)
        but = keys[but].parent_id
    ending = [key for key in keys.values() if key.revoked is None and key.id not in kept]
    for key in ending:
        key.revoked = time.time()
    return len(ending)


# Passwords: only the failures live here, the hashing is the server's


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


# Device login


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
