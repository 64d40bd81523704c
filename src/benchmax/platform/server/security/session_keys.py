"""Who is calling at a model session's address: whoever shows its key, or its owner.

The key of a session is in no database: anywhere else it is a key that nobody knows. It works no longer than the API key
that opened the session does.
"""

from __future__ import annotations

from starlette.datastructures import Headers

from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.authentication import KEY_HINT, Principal, authenticate
from benchmax.platform.server.services.model_sessions import ModelSession, ModelSessions
from benchmax.platform.store.accounts import users
from benchmax.platform.store.database import Database
from benchmax.platform.store.tables import ApiKey, User

ADDRESS = "/v1/sessions/"
_SCOPES = frozenset({"read", "write"})


def identify(
    database: Database, sessions: ModelSessions, headers: Headers, path: str, address: str, *, note_use: bool = True
) -> Principal | None:
    """The caller, or None without credentials; Refused when the credentials are not valid."""
    if not path.startswith(ADDRESS):
        return authenticate(database, headers, address, note_use=note_use)
    found = _by_session_key(database, sessions, headers, path, address)
    try:
        return found or authenticate(database, headers, address, note_use=note_use)
    except Refused as refused:
        words = "The key is not this session's, or the session has ended: open it again with PUT /v1/sessions/ID."
        raise Refused(refused.status_code, f"{words} {KEY_HINT}", WWW_Authenticate="Bearer") from None


def _by_session_key(
    database: Database, sessions: ModelSessions, headers: Headers, path: str, address: str
) -> Principal | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    session = sessions.of_key(users.digest(token.strip())) if scheme.lower() == "bearer" else None
    if session is None or not _is_at(session, path):
        return None
    with database.read() as db:
        opener, user = db.get(ApiKey, session.key_id), db.get(User, session.owner_id)
    if opener is None or user is None or not users.works(opener):
        sessions.end(session.owner_id, session.id)
        return None
    return Principal(user.id, user.email, user.role, _SCOPES, f"model session:{session.id}", address)


def _is_at(session: ModelSession, path: str) -> bool:
    own = ADDRESS + session.id
    return path == own or path.startswith(f"{own}/")
