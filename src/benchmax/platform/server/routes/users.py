"""Users: who may sign in. Only an administrator sees and changes others."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from benchmax.errors import UsageError
from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.auth import Caller, Principal
from benchmax.platform.server.security.passwords import hash_password
from benchmax.platform.server.state import Here
from benchmax.platform.store.accounts import user_admin as people
from benchmax.platform.store.accounts import users
from benchmax.platform.store.tables import User
from benchmax.platform.wire.accounts import UserInfo, UserList, UserRequest
from benchmax.platform.wire.base import Success

router = APIRouter(prefix="/v1/users", tags=["users"])

_NOT_THERE = "There is no such user, or you are not an administrator. `list_users` shows who you may see."


@router.get("")
def list_users(here: Here, caller: Caller) -> UserList:
    """Everyone, for an administrator; yourself, for others."""
    with here.database.read() as session:
        found = people.everyone(session, None if caller.role == "admin" else caller.user_id)
    return UserList(users=[_info(user, count) for user, count in found])


@router.post("", status_code=201)
def create_user(here: Here, caller: Caller, body: UserRequest) -> UserInfo:
    """A new user, who signs in with the password."""
    _administrator(caller)
    hashed = hash_password(body.password)
    with here.database.write() as session:
        if users.by_email(session, body.name) is not None:
            raise UsageError(f"There is a user {body.name!r} already. Choose another name.")
        user = users.ensure_user(session, body.name, body.role)
        user.password_hash = hashed
        caller.note(session, "user.create", user.id, name=user.email, role=user.role)
        return _info(user, 0)


@router.delete("/{user_id}")
def delete_user(here: Here, caller: Caller, user_id: Annotated[str, Path(max_length=80)]) -> Success:
    """Remove a user: no more sign-in, no keys, no secrets, and their runs are deleted."""
    with here.database.write() as session:
        user = people.find(session, user_id) if caller.role == "admin" else None
        if user is None:
            raise Refused(404, _NOT_THERE)
        if user.id == caller.user_id:
            raise UsageError("You cannot remove yourself. Another administrator can.")
        name = user.email
        people.remove(session, user)
        caller.note(session, "user.delete", user_id, name=name)
    return Success(success=True, message=f"{name} is removed.")


def _administrator(caller: Principal) -> None:
    if caller.role != "admin":
        raise Refused(404, _NOT_THERE)
    if beyond := set(users.SCOPES) - caller.scopes:  # a new user can do everything: so must who makes one
        raise Refused(403, f"Making a user needs a key that has the scope {', '.join(sorted(beyond))} too.")


def _info(user: User, runs: int) -> UserInfo:
    return UserInfo(
        id=user.id,
        name=user.email,
        role=user.role,
        has_password=user.password_hash is not None,
        created_at=user.created,
        runs=runs,
    )
