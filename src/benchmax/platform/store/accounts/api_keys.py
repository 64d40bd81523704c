"""API keys: made, found by their text, revoked with those they made."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.platform.store.accounts.tokens import digest
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import ApiKey, User
from benchmax.platform.wire.values import SCOPES

_KEY_TEXT = re.compile(r"sk_[0-9a-f]{8}_[\w-]{43}", re.ASCII)
# Asked with every request, so built once: building costs several times what running does.
_KEY = select(ApiKey, User).join(User, User.id == ApiKey.user_id).where(ApiKey.digest == bindparam("digest"))


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
