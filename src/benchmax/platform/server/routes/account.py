"""The caller's own things: keys, secrets, endpoints, the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes.parameters import Id, Limit
from benchmax.platform.server.security.authentication import Caller, shown_key
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.models import check_elsewhere, endpoints_of, own_endpoint
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.accounts import api_keys, audit, users
from benchmax.platform.store.accounts import secrets as vault
from benchmax.platform.store.tables import Endpoint
from benchmax.platform.wire import accounts as wire
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.models import EndpointInfo, EndpointList, EndpointRequest

router = Router(prefix="/v1", tags=["account"])

_SecretName = Annotated[str, Path(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


@router.get("/whoami")
def whoami(services: Services, caller: Caller) -> wire.WhoAmI:
    """Who you are to the server."""
    with services.database.read() as db:
        has_password = users.has_password(db, caller.user_id)
    return wire.WhoAmI(
        id=caller.user_id,
        email=caller.email,
        role=caller.role,
        scopes=sorted(caller.scopes),
        via=caller.actor,
        has_password=has_password,
    )


@router.get("/keys")
def list_keys(services: Services, caller: Caller) -> wire.KeyList:
    """Your keys, without the keys themselves."""
    with services.database.read() as db:
        found = api_keys.keys_of(db, caller.user_id)
    return wire.KeyList(keys=[shape(wire.KeyInfo, key, revoked=key.revoked is not None) for key in found])


@router.post("/keys", status_code=201)
def create_key(services: Services, caller: Caller, body: wire.KeyRequest) -> wire.NewKey:
    """A new key. Its text is in this answer and nowhere else; one made by a key ends with that key."""
    services.limiter.hit("key", caller.user_id)
    beyond = set(body.scopes) - caller.scopes
    if beyond:
        raise Refused(403, f"You do not have the scope {', '.join(sorted(beyond))} yourself.")
    with services.database.write() as db:
        parent = shown_key(db, caller)
        row, text = api_keys.create_key(
            db, caller.user_id, name=body.name, scopes=body.scopes, days=body.days, parent=parent
        )
        caller.note(db, "key.create", row.id, prefix=row.prefix, scopes=row.scopes)
    return shape(wire.NewKey, row, revoked=False, key=text)


@router.delete("/keys/{key_id}")
def revoke_key(services: Services, caller: Caller, key_id: Id) -> Success:
    """Revoke a key for good, and the keys it made."""
    with services.database.write() as db:
        revoked = api_keys.revoke_key(db, caller.user_id, key_id)
        key = required(revoked, "You have no such key. `benchmax keys list` shows yours.")
        caller.note(db, "key.revoke", key_id, prefix=key.prefix)
    return Success(success=True, message="The key is revoked.")


@router.get("/secrets")
def list_secrets(services: Services, caller: Caller) -> wire.SecretList:
    """Names of your secrets. Their values are never returned."""
    with services.database.read() as db:
        found = vault.names(db, caller.user_id)
    return wire.SecretList(secrets=[shape(wire.SecretName, row) for row in found])


@router.put("/secrets/{name}")
def put_secret(services: Services, caller: Caller, name: _SecretName, body: wire.SecretValue) -> Success:
    """Store a secret; your runs get it as an environment variable."""
    with services.database.write() as db:
        services.vault.put(db, caller.user_id, name, body.value)
        caller.note(db, "secret.set", name)
    return Success(success=True, message="The secret is stored.")


@router.delete("/secrets/{name}")
def delete_secret(services: Services, caller: Caller, name: _SecretName) -> Success:
    """Forget a secret."""
    with services.database.write() as db:
        found = vault.find(db, caller.user_id, name)
        db.delete(required(found, "You have no such secret. `benchmax secrets list` shows yours."))
        caller.note(db, "secret.delete", name)
    return Success(success=True, message="The secret is gone.")


@router.get("/endpoints")
def list_endpoints(services: Services, caller: Caller) -> EndpointList:
    """Model servers you can evaluate against."""
    with services.database.read() as db:
        found = sorted(endpoints_of(db, caller.user_id), key=lambda each: each.name)
    return EndpointList(endpoints=[_endpoint(row) for row in found])


@router.post("/endpoints", status_code=201)
def create_endpoint(services: Services, caller: Caller, body: EndpointRequest) -> EndpointInfo:
    """Name an OpenAI-compatible server; its key is stored encrypted and never returned."""
    check_elsewhere(services.settings, body.base_url, "Its models need no endpoint: name them as they are.")
    with services.database.write() as db:
        api_keys.refuse_own_key(db, body.base_url, body.api_key or "")
        if any(each.name == body.name for each in endpoints_of(db, caller.user_id)):
            raise UsageError(f"You have an endpoint {body.name!r} already. Choose another name.")
        row = Endpoint(owner_id=caller.user_id, name=body.name, base_url=body.base_url, model=body.model)
        db.add(row)
        db.flush()
        if body.api_key:
            row.secret_id = services.vault.put(db, caller.user_id, "api_key", body.api_key, row.id).id
        caller.note(db, "endpoint.create", row.id, base_url=body.base_url)
        db.flush()
        return _endpoint(row)


@router.delete("/endpoints/{endpoint_id}")
def delete_endpoint(services: Services, caller: Caller, endpoint_id: Id) -> Success:
    """Forget an endpoint and its key."""
    with services.database.write() as db:
        row = own_endpoint(db, caller.user_id, endpoint_id)
        secret = vault.find(db, caller.user_id, "api_key", row.id)
        db.delete(row)
        db.flush()
        if secret is not None:
            db.delete(secret)
        caller.note(db, "endpoint.delete", endpoint_id)
    return Success(success=True, message="The endpoint is gone.")


@router.get("/audit")
def list_audit(
    services: Services,
    caller: Caller,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> wire.AuditList:
    """Who did what, newest first: yours, or everyone's for an administrator."""
    mine = None if caller.role == "admin" else caller.user_id
    with services.database.read() as db:
        found = audit.page(db, user_id=mine, limit=limit, before=before)
    return wire.AuditList(entries=[shape(wire.AuditLine, row) for row in found])


def _endpoint(row: Endpoint) -> EndpointInfo:
    return shape(EndpointInfo, row, has_key=row.secret_id is not None)
