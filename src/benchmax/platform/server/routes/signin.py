"""Signing in: by one-time link or password in a browser, by device code in a terminal."""

from __future__ import annotations

import html
import time
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes import console
from benchmax.platform.server.security.authentication import COOKIE, Caller, cookie_token
from benchmax.platform.server.security.middleware import client_address
from benchmax.platform.server.security.passwords import check_password, hash_password
from benchmax.platform.server.server_services import Address, Services
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.accounts import api_keys, audit, device_codes, logins, users
from benchmax.platform.store.tables import ApiKey
from benchmax.platform.wire import accounts as wire
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.values import DEVICE_GRANT, SCOPES

router = Router(tags=["sign-in"])

DEVICE_DAYS = 90
_NO_DEVICE = "No device waits with this code. Check it; a code works for 30 minutes."
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in to benchmax</title>
<h1>benchmax</h1><form method="post" action="/login">{fields}<button>Sign in</button></form>"""
_LINK = '<input type="hidden" name="token" value="{token}">'
_PASSWORD = (
    '<p><label>E-mail <input name="email" type="email" autocomplete="username" required></label></p>'
    '<p><label>Password <input name="password" type="password" autocomplete="current-password" required></label></p>'
)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form, or of a JSON object."""
    body = await request.body()
    if request.headers.get("content-type", "").startswith("application/json"):
        try:
            given: Any = await request.json()
        except (ValueError, RecursionError):
            raise Refused(400, "The body is not JSON.") from None
        fields = given if isinstance(given, dict) else {}
        return {name: value for name, value in fields.items() if isinstance(value, str)}
    try:
        return {name: values[0] for name, values in parse_qs(body.decode("ascii"), max_num_fields=10).items()}
    except ValueError:
        raise Refused(400, "The form cannot be read.") from None


@router.get("/login", response_class=HTMLResponse, include_in_schema=False)
def login_page(services: Services, token: Annotated[str, Query(max_length=200)] = "") -> Response:
    """The console, or a plain form. Opening a link does not sign in: link previews and prefetchers open links too."""
    if (built := console.page(services.settings.console)) is not None:
        return built
    fields = _LINK.format(token=html.escape(token, quote=True)) if token else _PASSWORD
    return HTMLResponse(_PAGE.format(fields=fields))


@router.post("/login", include_in_schema=False)
def login(request: Request, services: Services, form: Annotated[dict[str, str], Depends(_form)]) -> Response:
    """Sign in with `token`, or with `email` and `password`."""
    address = client_address(request.scope)
    services.limiter.hit("login", address)
    if "token" in form:
        with services.database.write() as db:
            user_id = logins.use_link(db, form["token"])
        if user_id is None:
            raise Refused(401, "This link was used or is too old. `benchmax up` prints a new one, also while it runs.")
    else:
        user_id = check_password(services.database, form.get("email", ""), form.get("password", ""), address)
    with services.database.write() as db:
        if old := cookie_token(request.headers):
            logins.close_login(db, old)
        token = logins.open_login(db, user_id)
        audit.note(db, "login", user_id=user_id, actor="session", address=address)
    wants_page = "text/html" in request.headers.get("accept", "")
    response = RedirectResponse("/", 303) if wants_page else JSONResponse({"success": True})
    secure = request.url.scheme == "https" or (services.settings.public_url or "").startswith("https:")
    response.set_cookie(
        COOKIE, token, max_age=int(logins.LOGIN_SECONDS), httponly=True, samesite="lax", secure=secure, path="/"
    )
    return response


@router.post("/logout")
def logout(request: Request, services: Services, caller: Caller) -> Response:
    """End this login; a key stays as it is."""
    token = cookie_token(request.headers)
    if token:
        with services.database.write() as db:
            logins.close_login(db, token)
            caller.note(db, "logout")
    response = JSONResponse({"success": True})
    response.delete_cookie(COOKIE, path="/")
    return response


@router.post("/v1/password")
def change_password(request: Request, services: Services, caller: Caller, body: wire.PasswordChange) -> Success:
    """Change the password. Every other login ends; keys stay."""
    address = client_address(request.scope)
    services.limiter.hit("login", address)
    with services.database.read() as db:
        has_one = users.has_password(db, caller.user_id)
    if has_one:
        check_password(services.database, caller.email, body.current_password, address)
    elif caller.key_id is not None:  # a key would make itself a way in that outlives it
        raise Refused(403, "A first password is set by a person: sign in with the link that `benchmax up` prints.")
    hashed = hash_password(body.new_password)
    with services.database.write() as db:
        users.set_password_hash(db, caller.user_id, hashed)
        logins.sign_out(db, caller.user_id, but=None if caller.key_id else cookie_token(request.headers))
        caller.note(db, "password.change")
    return Success(
        success=True, message=f"The password is {'changed' if has_one else 'set'}; every other session has ended."
    )


@router.post("/v1/sign-out")
def sign_out_everywhere(services: Services, caller: Caller, body: wire.SignOut) -> Success:
    """End every login of yours, this one too; with `keys`, revoke every other API key as well."""
    with services.database.write() as db:
        ended = logins.sign_out(db, caller.user_id)
        revoked = api_keys.revoke_all(db, caller.user_id, but=caller.key_id) if body.keys else 0
        caller.note(db, "logout.everywhere", sessions=ended, keys=revoked)
    return Success(success=True, message=f"{ended} sessions have ended, {revoked} keys are revoked.")


# Device login


@router.post("/api/auth/device/code")
def device_code(
    request: Request, services: Services, address: Address, body: wire.DeviceCodeRequest
) -> wire.DeviceCodeAnswer:
    """A code for the device, and one for its user to type."""
    services.limiter.hit("device", client_address(request.scope))
    with services.database.write() as db:
        token, row = device_codes.create_device_code(db, body.client_id, client_address(request.scope))
    page = f"{address}/device"
    return wire.DeviceCodeAnswer(
        device_code=token,
        user_code=row.user_code,
        verification_uri=page,
        verification_uri_complete=f"{page}?user_code={row.user_code}",
        expires_in=device_codes.DEVICE_SECONDS,
        interval=device_codes.DEVICE_INTERVAL,
    )


@router.post("/api/auth/device/token", response_model=wire.DeviceToken)
def device_token(request: Request, services: Services, body: wire.DeviceTokenRequest) -> Any:
    """The token, once the user has approved; until then an OAuth error code."""
    if body.grant_type != DEVICE_GRANT:
        return _oauth_error("unsupported_grant_type")
    with services.database.write() as db:
        found = device_codes.poll_device_code(db, body.device_code, body.client_id)
        if isinstance(found, str):
            return _oauth_error(found)
        assert found.user_id is not None
        parent = db.get(ApiKey, found.key_id) if found.key_id else None
        if found.key_id and (parent is None or not api_keys.works(parent)):
            return _oauth_error("access_denied")
        row, text = api_keys.create_key(
            db,
            found.user_id,
            name=f"device {found.user_code}",
            scopes=SCOPES if parent is None else parent.scopes,
            days=DEVICE_DAYS,
            parent=parent,
        )
        address = client_address(request.scope)
        audit.note(db, "key.create", user_id=found.user_id, actor="device", target=row.id, address=address)
    return wire.DeviceToken(access_token=text, expires_in=max(0, int((row.expires or 0.0) - time.time())))


@router.get("/api/auth/device")
def show_device(
    services: Services, caller: Caller, user_code: Annotated[str, Query(alias="userCode", max_length=20)]
) -> wire.DeviceWaiting:
    """Which device waits with this code, and where it asked from: look before you approve."""
    services.limiter.hit("device", caller.user_id)
    with services.database.read() as db:
        return shape(wire.DeviceWaiting, required(device_codes.find_user_code(db, user_code), _NO_DEVICE))


@router.post("/api/auth/device/approve")
def approve_device(services: Services, caller: Caller, body: wire.DeviceApproval) -> Success:
    """Let the device that shows this code act as you, or not. Approved with a key, it can do what that key can."""
    services.limiter.hit("device", caller.user_id)
    with services.database.write() as db:
        row = required(device_codes.find_user_code(db, body.user_code), _NO_DEVICE)
        row.user_id, row.denied = (caller.user_id, False) if body.approve else (None, True)
        row.key_id = caller.key_id if body.approve else None
        caller.note(db, "device.approve" if body.approve else "device.deny", row.user_code)
    return Success(success=True, message="The device is signed in." if body.approve else "The device is refused.")


@router.get("/api/auth/token")
def token(request: Request, caller: Caller) -> wire.TokenAnswer:
    """The bearer to use with the API: the one you sent. Sessions of browsers need none."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Refused(403, "Only a device's token can be exchanged. Make a key on the settings page instead.")
    return wire.TokenAnswer(token=shown.strip())


def _oauth_error(word: str) -> JSONResponse:
    return JSONResponse({"error": word}, 400)
