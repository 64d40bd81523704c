"""Users: who may sign in. Only an administrator sees and changes others."""

from __future__ import annotations

from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes.parameters import Id
from benchmax.platform.server.security.authentication import Caller, Principal, shown_key
from benchmax.platform.server.security.passwords import hash_password
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.accounts import users
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import ApiKey, User
from benchmax.platform.wire.accounts import UserInfo, UserList, UserRequest
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.values import SCOPES

router = Router(prefix="/v1/users", tags=["users"])

_NOT_THERE = "There is no such user, or you are not an administrator. `list_users` shows who you may see."


@router.get("")
def list_users(services: Services, caller: Caller) -> UserList:
    """Everyone, for an administrator; yourself, for others."""
    with services.database.read() as db:
        found = users.everyone(db, None if caller.role == "admin" else caller.user_id)
    return UserList(users=[_info(user, count) for user, count in found])


@router.post("", status_code=201)
def create_user(services: Services, caller: Caller, body: UserRequest) -> UserInfo:
    """A new user, who signs in with the password."""
    _administrator(caller)
    hashed = hash_password(body.password)
    with services.database.write() as db:
        _check_key(shown_key(db, caller), body.role)
        if users.by_email(db, body.name) is not None:
            raise UsageError(f"There is a user {body.name!r} already. Choose another name.")
        user = users.ensure_user(db, body.name, body.role)
        user.password_hash = hashed
        caller.note(db, "user.create", user.id, name=user.email, role=user.role)
        return _info(user, 0)


@router.delete("/{user_id}")
def delete_user(services: Services, caller: Caller, user_id: Id) -> Success:
    """Remove a user: no more sign-in, no keys, no secrets, and their runs are deleted."""
    with services.database.write() as db:
        user = required(get_if(db, User, user_id, deleted=None) if caller.role == "admin" else None, _NOT_THERE)
        if user.id == caller.user_id:
            raise UsageError("You cannot remove yourself. Another administrator can.")
        name = user.email
        users.remove(db, user)
        caller.note(db, "user.delete", user_id, name=name)
    return Success(success=True, message=f"{name} is removed.")


def _administrator(caller: Principal) -> None:
    if caller.role != "admin":
        raise Refused(404, _NOT_THERE)
    if beyond := set(SCOPES) - caller.scopes:  # a new user has every scope: so must the caller
        raise Refused(403, f"Making a user needs a key that has the scope {', '.join(sorted(beyond))} too.")


def _check_key(key: ApiKey | None, role: str) -> None:
    """A password is a way in that outlives the key it was set with: an administrator's needs a person."""
    if key is not None and (role == "admin" or key.expires is not None):
        what = "An administrator" if role == "admin" else "With a key that expires, a user"
        raise Refused(403, f"{what} is not made by a key. Sign in with the link that `benchmax up` prints.")


def _info(user: User, runs: int) -> UserInfo:
    return shape(UserInfo, user, name=user.email, has_password=user.password_hash is not None, runs=runs)
