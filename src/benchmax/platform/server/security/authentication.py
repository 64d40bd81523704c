"""Who is calling: a bearer key, or a browser's login. Both are looked up by the digest of what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session
from starlette.datastructures import Headers

from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security import last_uses
from benchmax.platform.store.accounts import audit, users
from benchmax.platform.store.database import Database
from benchmax.platform.store.tables import ApiKey, User

COOKIE = "benchmax_session"
KEY_HINT = "Send `Authorization: Bearer sk_…`; the console's settings page and `benchmax keys create` make keys."


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller."""

    user_id: str
    email: str
    role: str
    scopes: frozenset[str]
    actor: str
    """`key:<prefix>` or `session`, for the audit log."""
    address: str
    key_id: str | None = None
    """The key that was sent; None for a login in a browser."""

    def note(self, db: Session, action: str, target: str = "", **details: object) -> None:
        """Write what the caller did to the audit log."""
        audit.note(
            db, action, user_id=self.user_id, actor=self.actor, target=target, address=self.address, details=details
        )


def authenticate(database: Database, headers: Headers, address: str, *, note_use: bool = True) -> Principal | None:
    """The caller, or None without credentials; Refused when the credentials are not valid."""
    authorization = headers.get("authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, f"The Authorization header is not a bearer key. {KEY_HINT}", WWW_Authenticate="Bearer")
        return _by_key(database, token.strip(), address, note_use)
    opened = cookie_token(headers)
    return _by_session(database, opened, address, note_use) if opened else None


def _by_key(database: Database, token: str, address: str, note_use: bool) -> Principal:
    with database.read() as db:
        found = users.find_key(db, token)
    if found is None:
        raise Refused(401, f"The API key is wrong, expired or revoked. {KEY_HINT}", WWW_Authenticate="Bearer")
    key, user = found
    if note_use and users.needs_touch(key):
        last_uses.note(database, key.id, lambda db: users.touch_key(db, key.id))
    return _principal(user, key.scopes, f"key:{key.prefix}", address, key.id)


def _by_session(database: Database, token: str, address: str, note_use: bool) -> Principal:
    with database.read() as db:
        found = users.find_login(db, token)
    if found is None:
        raise Refused(401, "The session has ended. Sign in again.")
    opened, user = found
    if note_use and users.login_needs_touch(opened):
        last_uses.note(database, opened.digest, lambda db: users.touch_login(db, opened))
    return _principal(user, users.SCOPES, "session", address)


def _principal(
    user: User, scopes: list[str] | tuple[str, ...], actor: str, address: str, key_id: str | None = None
) -> Principal:
    return Principal(user.id, user.email, user.role, frozenset(scopes), actor, address, key_id)


def shown_key(db: Session, principal: Principal) -> ApiKey | None:
    """The key the caller sent, for what is made in its name; None for a login."""
    if principal.key_id is None:
        return None
    key = db.get(ApiKey, principal.key_id)
    if key is None or not users.works(key):  # revoked since the request began
        raise Refused(401, f"The API key is wrong, expired or revoked. {KEY_HINT}", WWW_Authenticate="Bearer")
    return key


def cookie_token(headers: Headers) -> str | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return morsel.value if morsel else None


# What routes ask for


async def caller(request: Request) -> Principal:
    """The caller of a route that needs one."""
    principal: Principal | None = request.scope.get("principal")
    if principal is None:
        raise Refused(401, f"This needs an API key. {KEY_HINT}", WWW_Authenticate="Bearer")
    return principal


async def maybe_caller(request: Request) -> Principal | None:
    """The caller of a route that also answers without credentials, if there is one."""
    found: Principal | None = request.scope.get("principal")
    return found


Caller = Annotated[Principal, Depends(caller)]
MaybeCaller = Annotated[Principal | None, Depends(maybe_caller)]
