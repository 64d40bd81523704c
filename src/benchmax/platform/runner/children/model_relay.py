"""The platform's models for a sandboxed environment, to which the platform's own address is closed.

A judge asks `POST /v1/chat/completions` or `GET /v1/models` here, with a key of its user's; nothing else is passed on,
no cookie and no redirect. It grants no rights: the platform refuses whoever has no key, as always.

It has a thread of its own, because training blocks the event loop of its process for long.
"""

from __future__ import annotations

import asyncio
import threading

import aiohttp
from aiohttp import web

from benchmax import limits
from benchmax.models.relay import RELAY

_FORWARDED = frozenset({("POST", "/v1/chat/completions"), ("GET", "/v1/models")})
_REQUEST_HEADERS = ("Authorization", "Content-Type", "Accept")
_RESPONSE_HEADERS = ("Content-Type", "Content-Encoding", "Retry-After", "X-Benchmax-Model", "X-Benchmax-Note")
_BODY_BYTES = 32 * limits.MIB
_START_SECONDS = 10.0


class ModelRelay:
    """Listens on a port of 127.0.0.1 while it is entered."""

    def __init__(self, platform: str) -> None:
        self._platform = platform.rstrip("/")
        self._loop = asyncio.new_event_loop()
        self._port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="benchmax-model-relay", daemon=True)

    def __enter__(self) -> dict[str, str]:
        """Returns the variables by which an environment finds it."""
        self._thread.start()
        self._ready.wait(_START_SECONDS)
        return {RELAY: f"{self._platform} http://127.0.0.1:{self._port}"} if self._port else {}

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner, session = self._loop.run_until_complete(self._open())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(session.close())
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _open(self) -> tuple[web.AppRunner, aiohttp.ClientSession]:
        self._session = aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._port = int(runner.addresses[0][1])
        return runner, self._session

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if (request.method, request.raw_path) not in _FORWARDED:
            raise web.HTTPNotFound(text="Only /v1/chat/completions and /v1/models are passed on to the platform.")
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        whole = aiohttp.ClientTimeout(total=None, sock_connect=_START_SECONDS)
        url, body = self._platform + request.raw_path, await request.read()
        asked = self._session.request(
            request.method, url, data=body or None, headers=headers, allow_redirects=False, timeout=whole
        )
        try:
            async with asked as answer:
                return await _copied(answer, request)
        except aiohttp.ClientError as error:
            raise web.HTTPBadGateway(text=f"The platform does not answer: {error}. Try again.") from None


async def _copied(answer: aiohttp.ClientResponse, request: web.Request) -> web.StreamResponse:
    kept = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=kept)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response
