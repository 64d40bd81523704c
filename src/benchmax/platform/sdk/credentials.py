"""Which server, which key. Read at each call, never at import.

The key, first found wins: what you pass · the file at ACT_AS_TOKEN_PATH · PLATFORM_API_KEY · BENCHMAX_API_KEY or
CASTFORM_API_KEY · the sign-in of `benchmax login` · the key of the server on this machine, for that server alone.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmax import config, profiles
from benchmax.config import data_dir
from benchmax.config import env_token as env_token
from benchmax.config import resolve_judge_key as resolve_judge_key
from benchmax.errors import ConfigError
from benchmax.files.atomic import read_object, write_text
from benchmax.net.origins import PORTS, origin
from benchmax.platform.sdk.auto_start import local_url, this_machine_url
from benchmax.platform.sdk.exceptions import AuthenticationError, DeviceAuthError, TrainerError
from benchmax.platform.wire.values import DEVICE_GRANT

TokenProvider: TypeAlias = Callable[[], str]

CLIENT_ID = "castform-cli"
_BEARER_SECONDS = 60.0
"""How long the bearer of a sign-in is reused; platforms let it live for minutes."""
_bearers: dict[tuple[str, str], tuple[str, float]] = {}
_NO_KEY = (
    "There is no API key. Set CASTFORM_API_KEY (or BENCHMAX_API_KEY), pass api_key=…, or sign in with `benchmax login`."
)


def base_url(given: str | None = None) -> str:
    """The platform's address: as given, from the environment, where you signed in, else this machine's own.

    A service elsewhere is only used when it was named.
    """
    if not given:
        return named_url() or this_machine_url()
    found = origin(given)
    if found.scheme not in PORTS or not found.host:
        raise TrainerError(f"{given!r} is not a web address. Check the spelling: https://host or http://host:port.")
    return given.rstrip("/")


def named_url() -> str | None:
    """The platform that was named, by the environment or by signing in; None: this machine's own is meant.

    It is also meant by a sign-in to it: its address may have changed since.
    """
    if config.setting("PLATFORM_URL") or config.setting("BASE_DOMAIN"):
        return config.platform_url()
    url = read_object(credentials_path()).get("url")
    own = read_object(data_dir() / "credentials.json").get("url")
    return url.rstrip("/") if isinstance(url, str) and url and url != own else None


def auth_base(platform: str) -> str:
    """Where to sign in: as set; a server of one's own signs in itself."""
    return config.auth_url() if platform == config.hosted_url() or config.setting("AUTH_URL") else platform


def bearer(api_key: str | None, provider: TokenProvider | None, platform: str) -> str:
    """The token to send to `platform`; AuthenticationError when there is none."""
    token = api_key or (provider() if provider else None) or config.platform_token()
    token = token or _session_token(platform) or _local_key(platform)
    if not token:
        raise AuthenticationError(_NO_KEY, 401)
    return _sendable(token)


def key_variable() -> str | None:
    """The variable of the environment that the key comes from; None when none is set."""
    names = ("ACT_AS_TOKEN_PATH", "PLATFORM_API_KEY", "BENCHMAX_API_KEY", "CASTFORM_API_KEY")
    return next((name for name in names if os.environ.get(name, "").strip()), None)


def _sendable(token: str) -> str:
    """The key, if a header can hold it; the error message never shows it."""
    if token.isascii() and token.isprintable() and " " not in token:
        return token
    wrong = "letters that no key has (not ASCII)" if not token.isascii() else "a line break, blank or control character"
    raise AuthenticationError(f"The API key contains {wrong}. Copy it again, whole and alone.", 401)


def platform_bearer() -> str:
    """The token for the platform this process talks to."""
    return bearer(None, None, base_url())


def as_token_provider(token: str | TokenProvider | None) -> TokenProvider | None:
    """A token, or a function that returns one, as a function."""
    return (lambda: token) if isinstance(token, str) else token


def resolve_token_provider(
    api_key: str | None = None, token_provider: TokenProvider | None = None, platform: str | None = None
) -> TokenProvider:
    """A function that returns the token for a platform: the key that was passed, else as everywhere."""
    return lambda: bearer(api_key, token_provider, base_url(platform))


# The key of the server on this machine


def _local_key(platform: str) -> str | None:
    """The local server's key; it is sent to no other address."""
    path = data_dir() / "credentials.json"
    kept = read_object(path)
    if not kept or not _private(path):
        return None
    ours = {str(kept.get("url", "")).rstrip("/"), local_url()}
    return str(kept.get("api_key") or "") or None if platform in ours else None


# The sign-in of `benchmax login`


def credentials_path() -> Path:
    return Path(config.setting("CREDENTIALS_PATH") or "~/.castform/credentials.json").expanduser()


def _session_token(platform: str) -> str | None:
    """The saved sign-in's token, exchanged for a bearer; only for the platform it was made for.

    One that names no platform was kept by another client, and is for the hosted one.
    """
    path = credentials_path()
    kept = read_object(path)
    token = kept.get("access_token")
    if not token or str(kept.get("url") or config.hosted_url()).rstrip("/") != platform:
        return None
    if not _private(path):
        raise ConfigError(f"{path} can be read by others. Run `chmod 600 {path}`, or sign in again.")
    return _exchanged(auth_base(platform), token)


def _exchanged(auth: str, session: str) -> str:
    """The bearer for a sign-in; kept for a while, so that not every request needs a second one."""
    bearer, until = _bearers.get((auth, session), ("", 0.0))
    if time.monotonic() < until:
        return bearer
    answer = _request("GET", f"{auth}/api/auth/token", headers={"Authorization": f"Bearer {session}"})
    if answer.status_code != 200:
        raise AuthenticationError("Your sign-in has ended. Run `benchmax login` again.", 401)
    bearer = str(_object(answer, "token")["token"])
    _bearers[auth, session] = bearer, time.monotonic() + _BEARER_SECONDS
    return bearer


def login(
    platform: str | None = None,
    *,
    say: Callable[[str], None] = print,
    open_page: Callable[[str], Any] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Sign this machine in by device code: a page to open, a code to confirm. Returns the file that keeps it."""
    platform = base_url(platform)
    auth = auth_base(platform)
    code = request_device_code(auth)
    page = code.get("verification_uri_complete") or code["verification_uri"]  # the former is optional
    say(f"Open {page} and confirm the code {code['user_code']}.")
    if open_page is not None and not config.setting("NO_BROWSER"):
        open_page(page)
    return keep_session(platform, poll_for_token(code, auth, sleep=sleep))


def request_device_code(auth: str | None = None) -> dict[str, Any]:
    """Begin a sign-in by device code: the code to confirm, and where."""
    address = f"{auth or auth_base(base_url())}/api/auth/device/code"
    return _post(address, {"client_id": CLIENT_ID}, "device_code", "user_code")


def poll_for_token(
    code: Mapping[str, Any], auth: str | None = None, *, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Wait until the code is confirmed; returns the token. DeviceAuthError when it is not."""
    body = {"grant_type": DEVICE_GRANT, "device_code": code["device_code"], "client_id": CLIENT_ID}
    interval = float(code.get("interval") or 5)
    deadline = time.monotonic() + float(code.get("expires_in") or 1800)
    while time.monotonic() < deadline:
        sleep(interval)
        answer = _post(f"{auth or auth_base(base_url())}/api/auth/device/token", body, also=400)
        if "access_token" in answer:
            return str(answer["access_token"])
        if answer.get("error") == "slow_down":
            interval += 5
        elif answer.get("error") != "authorization_pending":
            raise DeviceAuthError(f"The sign-in failed: {answer.get('error')}. Run `benchmax login` again.", 401)
    raise DeviceAuthError("Nobody confirmed the code in time. Run `benchmax login` again.", 401)


def logout() -> bool:
    """Forget the sign-in; False when there was none."""
    path = credentials_path()
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


clear_castform_session = logout


def ensure_session(interactive: bool | None = None) -> str:
    """A token; without one, sign in first, provided that a person can do it."""
    try:
        return platform_bearer()
    except AuthenticationError:
        allowed = sys.stdin.isatty() if interactive is None else interactive
        if not allowed or config.setting("NO_AUTO_LOGIN"):
            raise
    import webbrowser

    login(open_page=webbrowser.open)
    return platform_bearer()


def keep_session(platform: str, token: str) -> Path:
    """Save a token for a platform, readable by the user alone; returns the file."""
    return write_castform_session({"url": platform, "access_token": token})


def read_castform_session() -> dict[str, Any] | None:
    """What `benchmax login` kept; None when nobody is signed in."""
    return read_object(credentials_path()) or None


def write_castform_session(session: Mapping[str, Any]) -> Path:
    """Save a sign-in, readable by the user alone; returns the file."""
    path = credentials_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, json.dumps(dict(session)), private=True)
    return path


def _private(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def _post(url: str, body: dict[str, Any], *needed: str, also: int = 200) -> dict[str, Any]:
    answer = _request("POST", url, json=body)
    if answer.status_code not in (200, 201, also):
        raise TrainerError(f"{_host(url)} answered {answer.status_code}. Check the address.", answer.status_code)
    return _object(answer, *needed)


def _object(answer: Any, *needed: str) -> dict[str, Any]:
    """The answer's JSON object with the fields that are needed; a server that sends anything else is no platform."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TrainerError(f"{_host(str(answer.url))} is no platform: its answer is not JSON. Check the address.")
    if missing := [name for name in needed if name not in found]:
        raise TrainerError(f"{_host(str(answer.url))} answered without {', '.join(missing)}. Check the address.")
    return found


def _host(url: str) -> str:
    """The host, for messages; also of what is no valid address."""
    return url.partition("//")[2].partition("/")[0]


def _by_profile() -> str:
    """A clause that says which profile the address comes from; empty when it comes from none."""
    name = profiles.profile_name()
    if not name:
        return ""
    where = f"the profile {name!r} in {profiles.config_path()}"
    return f"; {where} names it, and `benchmax profile activate none` goes back to this machine"


def _request(method: str, url: str, **request: Any) -> Any:
    import httpx2

    try:
        return httpx2.request(method, url, timeout=30.0, **request)
    except httpx2.HTTPError as error:
        raise TrainerError(
            f"Cannot reach {_host(url)}: {error}. Check the address and the network{_by_profile()}."
        ) from None
    except httpx2.InvalidURL as error:
        raise TrainerError(f"{url!r} is not an address: {error}. Check it.") from None
