"""Who is calling: a bearer key, or a browser's login. Both are looked up by the digest of what was sent.

At a model session's address, the key of that session is one, too. It is in no database: anywhere else it is a key that
nobody knows. It works no longer than the API key that opened the session does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Self

from fastapi import Depends, Request
from sqlalchemy.orm import Session
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from benchmax.platform.server.error_responses import Refused
from benchmax.platform.server.security import last_uses
from benchmax.platform.server.services.model_sessions import ModelSessions
from benchmax.platform.store.accounts import api_keys, audit, logins, tokens
from benchmax.platform.store.database import Database
from benchmax.platform.store.tables import ApiKey, User
from benchmax.platform.wire.values import SCOPES

COOKIE = "benchmax_session"
SESSION_PATHS = "/v1/sessions/"
KEY_HINT = "Send `Authorization: Bearer sk_…`; the console's settings page and `benchmax keys create` make keys."
NEEDS_KEY = "This needs an API key."
_BAD_KEY = "The API key is wrong, expired or revoked."


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

    @classmethod
    def of(cls, user: User, scopes: Iterable[str], actor: str, address: str, key_id: str | None = None) -> Self:
        return cls(user.id, user.email, user.role, frozenset(scopes), actor, address, key_id)

    def note(self, db: Session, action: str, target: str = "", **details: object) -> None:
        """Write what the caller did to the audit log."""
        audit.note(
            db, action, user_id=self.user_id, actor=self.actor, target=target, address=self.address, details=details
        )


def unauthenticated(words: str) -> Refused:
    """The refusal of a caller without a key that works; it says how to send one, and how to get one."""
    return Refused(401, f"{words} {KEY_HINT}", WWW_Authenticate="Bearer")


def authenticate(
    database: Database, sessions: ModelSessions, headers: Headers, path: str, address: str, *, note_use: bool = True
) -> Principal | None:
    """The caller, or None without credentials; Refused when the credentials are not valid."""
    if not path.startswith(SESSION_PATHS):
        return _by_credentials(database, headers, address, note_use)
    found = _by_session_key(database, sessions, headers, path, address)
    try:
        return found or _by_credentials(database, headers, address, note_use)
    except Refused:
        raise unauthenticated(
            "The key is not this session's, or the session has ended: open it again with PUT /v1/sessions/ID."
        ) from None


def _by_credentials(database: Database, headers: Headers, address: str, note_use: bool) -> Principal | None:
    authorization = headers.get("authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthenticated("The Authorization header is not a bearer key.")
        return _by_key(database, token.strip(), address, note_use)
    login = cookie_token(headers)
    return _by_login(database, login, address, note_use) if login else None


def _by_key(database: Database, token: str, address: str, note_use: bool) -> Principal:
    with database.read() as db:
        found = api_keys.find_key(db, token)
    if found is None:
        raise unauthenticated(_BAD_KEY)
    key, user = found
    if note_use and tokens.needs_touch(key.last_used):
        last_uses.note(database, key.id, lambda db: api_keys.touch_key(db, key.id))
    return Principal.of(user, key.scopes, f"key:{key.prefix}", address, key.id)


def _by_login(database: Database, token: str, address: str, note_use: bool) -> Principal:
    with database.read() as db:
        found = logins.find_login(db, token)
    if found is None:
        raise Refused(401, "The session has ended. Sign in again.")
    opened, user = found
    if note_use and tokens.needs_touch(opened.last_seen):
        last_uses.note(database, opened.digest, lambda db: logins.touch_login(db, opened))
    return Principal.of(user, SCOPES, "session", address)


def _by_session_key(
    database: Database, sessions: ModelSessions, headers: Headers, path: str, address: str
) -> Principal | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    session = sessions.of_key(tokens.digest(token.strip())) if scheme.lower() == "bearer" else None
    if session is None or not f"{path}/".startswith(f"{SESSION_PATHS}{session.id}/"):
        return None
    with database.read() as db:
        opener, user = db.get(ApiKey, session.key_id), db.get(User, session.owner_id)
    if opener is None or user is None or not api_keys.works(opener):
        sessions.end(session.owner_id, session.id)
        return None
    return Principal.of(user, ("read", "write"), f"model session:{session.id}", address)


def shown_key(db: Session, principal: Principal) -> ApiKey | None:
    """The key the caller sent, for what is made in its name; None for a login."""
    if principal.key_id is None:
        return None
    key = db.get(ApiKey, principal.key_id)
    if key is None or not api_keys.works(key):  # revoked since the request began
        raise unauthenticated(_BAD_KEY)
    return key


def cookie_token(headers: Headers) -> str | None:
    """The token of a browser's login. Cookies of other servers on this host come along, whatever their form."""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE) or None


# What routes ask for


async def caller(request: Request) -> Principal:
    """The caller of a route that needs one."""
    principal: Principal | None = request.scope.get("principal")
    if principal is None:
        raise unauthenticated(NEEDS_KEY)
    return principal


async def maybe_caller(request: Request) -> Principal | None:
    """The caller of a route that also answers without credentials, if there is one."""
    found: Principal | None = request.scope.get("principal")
    return found


Caller = Annotated[Principal, Depends(caller)]
MaybeCaller = Annotated[Principal | None, Depends(maybe_caller)]
