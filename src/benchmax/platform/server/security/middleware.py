"""What every request passes before any route, and every answer after it.

Loopback is no protection: a page in the operator's browser can reach it too. So the Host must be the server's (DNS
rebinding), an unsafe method must not come from another site (CSRF), nothing is shared with other origins (no CORS), and
who may call is decided here, for all routes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchmax.net.origins import host_name
from benchmax.net.sse import MEDIA_TYPE
from benchmax.platform.server.error_responses import Refused, problem, unexpected
from benchmax.platform.server.security.authentication import Principal, authenticate, cookie_token
from benchmax.platform.server.security.body_limits import OPEN_BYTES, BodyBudget, LimitedBody, is_hang_up, too_large
from benchmax.platform.server.security.rate_limits import ConcurrencyLimit
from benchmax.platform.server.security.run_access import find_readable
from benchmax.platform.server.security.scopes import SAFE_METHODS, Level, check_scope
from benchmax.platform.server.security.stream_watch import StreamWatch
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.tables import Run

if TYPE_CHECKING:
    from benchmax.platform.server.server_services import ServerServices

MOST_STREAMS = 256
"""Live feeds that one user, or one address without a key, may have open."""
OPENING = 4
"""Live feeds whose reader is looked up at the same time: a thousand that open at once delay no other request."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_HEADER_PAIRS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_HEADER_NAMES = frozenset(name for name, _ in _HEADER_PAIRS)


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, services: ServerServices) -> None:
        self._app = app
        self._services = services
        self._streams = StreamWatch()
        self._budget = BodyBudget()
        self._feeds = ConcurrencyLimit()
        self._opening = asyncio.Semaphore(OPENING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no websockets here: the server closes the connection
        answer = _Answer(send)
        try:
            headers = Headers(scope=scope)
            check_host(headers, scope["path"], self._services.settings)
            check_origin(scope, headers)
            level, run_id = self._services.access_table.find(scope["method"], scope["path"])
            most = self._most(scope, level)
            check_length(headers, most)
            await self._let_in(scope, headers, level, run_id)
            with self._limited(scope, headers, receive, most) as limited:
                await self._serve(scope, headers, limited, answer)
        except HTTPException as refused:
            if not is_hang_up(refused):
                said = dict(refused.headers or {})
                await problem(refused.status_code, refused.detail, said)(scope, receive, answer.send)
        except Exception as error:
            if is_hang_up(error):
                return
            response = unexpected(error)
            if answer.started:
                raise
            await response(scope, receive, answer.send)

    @contextmanager
    def _limited(self, scope: Scope, headers: Headers, receive: Receive, most: int) -> Iterator[Receive]:
        """What receives the body within its limits, and for a live feed a place among those of its reader."""
        with ExitStack() as held:
            if _is_feed(scope):
                principal: Principal | None = scope.get("principal")
                who = f"user {principal.user_id}" if principal else f"address {client_address(scope)}"
                words = f"You have {MOST_STREAMS} live feeds open. Close some first."
                held.enter_context(self._feeds.hold(who, MOST_STREAMS, words, seconds=30))
            if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
                idle = self._services.settings.idle_seconds
                body = LimitedBody(receive, self._budget, most=most, stored=_is_stored(scope), idle_seconds=idle)
                held.callback(body.end)
                receive = body.receive
            yield receive

    async def _serve(self, scope: Scope, headers: Headers, receive: Receive, answer: _Answer) -> None:
        """Answer; a live stream only for as long as its reader may read."""
        bound = asyncio.timeout(None)
        try:
            with ExitStack() as watched:
                answer.on_stream = lambda: watched.enter_context(self._watched(scope, headers, bound))
                async with bound:
                    await self._app(scope, receive, answer.send)
        except TimeoutError:
            if not bound.expired():
                raise
            await answer.end()

    def _watched(self, scope: Scope, headers: Headers, bound: asyncio.Timeout) -> AbstractContextManager[None]:
        shown: Run | None = scope.get("run")
        run_id = shown.id if shown else None

        def may_read() -> bool:
            try:
                _, run = self._look_up(scope, headers, run_id, note_use=False)
            except Refused:
                return False
            except SQLAlchemyError:
                return True  # the database cannot be reached: nothing is known
            return run_id is None or run is not None

        credentials = headers.get("authorization") or cookie_token(headers)
        return self._streams.watching((credentials, run_id), may_read, bound)

    async def _let_in(self, scope: Scope, headers: Headers, level: Level, run_id: str | None) -> None:
        if level == "open":
            return
        async with self._opening if _is_feed(scope) else nullcontext():
            principal, run = await run_in_threadpool(self._look_up, scope, headers, run_id)
        check_scope(principal, level)
        scope["principal"], scope["run"] = principal, run

    def _look_up(
        self, scope: Scope, headers: Headers, run_id: str | None, *, note_use: bool = True
    ) -> tuple[Principal | None, Run | None]:
        """The caller, and the run to be read: one call in a thread for what nearly every request needs."""
        database = self._services.database
        sessions, path = self._services.model_sessions, scope["path"]
        principal = authenticate(database, sessions, headers, path, client_address(scope), note_use=note_use)
        return principal, None if run_id is None else find_readable(database, run_id, principal)

    def _most(self, scope: Scope, level: Level) -> int:
        """Bytes of the body."""
        if _is_stored(scope) and scope["method"] == "PUT":
            return self._services.settings.upload_bytes
        # What anyone may send is held in memory before the caller is known.
        return OPEN_BYTES if level == "open" else self._services.settings.body_bytes


class _Answer:
    """Adds the security headers to whatever is sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.on_stream: Callable[[], None] | None = None
        """Called when the answer turns out to be a live stream."""

    async def end(self) -> None:
        """Close an answer that was cut off."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            kind = Headers(raw=message["headers"]).get("content-type", "")
            if self.on_stream is not None and MEDIA_TYPE in kind:
                self.on_stream()
            headers = [pair for pair in message["headers"] if pair[0].lower() not in _HEADER_NAMES]
            if all(name.lower() != b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers + _HEADER_PAIRS
        await self._send(message)


def _is_stored(scope: Scope) -> bool:
    """Whether the body is a file that goes to the disk as it comes, not JSON to be parsed."""
    if scope["method"] == "PUT":
        return bool(scope["path"].startswith("/v1/storage/uploads/"))
    return bool(scope["method"] == "POST" and scope["path"] == "/v1/datasets")


def _is_feed(scope: Scope) -> bool:
    return bool(scope["method"] == "GET" and scope["path"].endswith("/stream"))


def client_address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


def check_host(headers: Headers, path: str, settings: ServerSettings) -> None:
    """Serve only the server's own names, whatever address they resolve to."""
    given = headers.getlist("host")
    if len(given) != 1 or not path.startswith("/"):
        raise Refused(400, "Send exactly one Host header and a path that begins with /.")
    if host_name(given[0]) not in settings.hosts:
        raise Refused(421, "This server does not answer to that Host. Use the address that `benchmax status` shows.")


def check_length(headers: Headers, most: int) -> None:
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise Refused(400, "The Content-Length is not a number.")
    if int(length) > most:
        raise too_large(most)


def check_origin(scope: Scope, headers: Headers) -> None:
    """An unsafe method must come from the console's own pages, or from a program that sends a key."""
    if scope["method"] in SAFE_METHODS:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    own = f"{scope['scheme']}://{headers['host']}"
    foreign = site not in (None, "same-origin", "none") or (origin is not None and origin.lower() != own.lower())
    unproven = site is None and origin is None and "authorization" not in headers and cookie_token(headers) is not None
    if foreign or unproven:
        raise Refused(403, "This request came from another site, or cannot show that it did not.")
