"""Who may send requests to an agent: clients with the secret, and no web page.

A page in a browser can reach a loopback port, with its own Origin, or through a host name that resolves to it. So a
request with an Origin is refused, and the Host must be an address, `localhost`, or a name that the agent was given.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from benchmax.net.origins import host_name, is_ip

MIN_SECRET_CHARS = 16

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def error_response(status: int, error: str, detail: str) -> web.Response:
    return web.json_response({"error": error, "detail": detail}, status=status)


def check_host(names: Iterable[str]) -> Middleware:
    """A middleware that refuses requests that a web page could have sent."""
    known = {"localhost", *(name.lower() for name in names)}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not _is_own_host(hosts[0], known) or "://" in request.raw_path.split("?")[0]:
            return error_response(421, "misdirected", "This Host is not this agent's. Use its address.")
        if "Origin" in request.headers:
            return error_response(403, "forbidden", "Web pages may not speak to this agent.")
        return await handler(request)

    return check


def _is_own_host(host: str, known: set[str]) -> bool:
    name = host_name(host)
    return name is not None and (name in known or is_ip(name))


def bearer_token(request: web.Request) -> str:
    """The token of a request, or an empty text."""
    given = request.headers.getall("Authorization", [])
    kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if kind.lower() == "bearer" else ""


def same_secret(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
