"""Who may speak to an agent: those with the secret, on a connection no web page could have made.

A page in somebody's browser can reach a loopback port, under its own name (Origin) or under a name of its own that
points there (Host). So a request with an Origin is refused, and the Host must be an address, `localhost`, or a name
that the agent was told.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

MIN_SECRET_CHARS = 16

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refusal(status: int, error: str, detail: str) -> web.Response:
    return web.json_response({"error": error, "detail": detail}, status=status)


def host_checked(names: Iterable[str]) -> Middleware:
    """A middleware that turns away what a browser was tricked into sending."""
    known = {"localhost", *(name.lower() for name in names)}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not _trusted(hosts[0], known) or "://" in request.raw_path.split("?")[0]:
            return refusal(421, "misdirected", "This Host is not this agent's. Use its address.")
        if "Origin" in request.headers:
            return refusal(403, "forbidden", "Web pages may not speak to this agent.")
        return await handler(request)

    return check


def _trusted(host: str, known: set[str]) -> bool:
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.removeprefix(":").isdigit()):
            return False
    else:
        name, colon, port = host.partition(":")
        if colon and not port.isdigit():
            return False
    if name.lower() in known:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def bearer(request: web.Request) -> str:
    """The token of a request, or nothing."""
    given = request.headers.getall("Authorization", [])
    kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if kind.lower() == "bearer" else ""


def same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
