"""An OpenAI-compatible server over one local model.

Covered: by default only this machine can connect; a foreign Host or Origin header is refused (DNS rebinding, pages that
post to localhost); an API key, when set, is required everywhere but at /health; an interface that other machines reach
cannot be bound without one; a client that disconnects ends its generation.
Not covered: TLS, accounts, fairness between clients. Put a proxy in front for those.

Log-probs are those of the distribution a token was drawn from (after temperature, before top-p and top-k).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from benchmax.errors import ModelRejected, UsageError
from benchmax.inference.local_model import LocalModel
from benchmax.inference.server import openai_api as api
from benchmax.inference.server.completions import LocalCompletions, StreamFailed
from benchmax.models.openai_error_bodies import error_body, error_response
from benchmax.net import sse
from benchmax.net.origins import LOOPBACK, host_name, is_loopback, origin

logger = logging.getLogger(__name__)

BODY_BYTES = 32 * 1024 * 1024
SHUTDOWN_SECONDS = 2.0
"""For replies under way when the server is stopped."""
ROUTES = "There are POST /v1/chat/completions and /v1/completions, and GET /v1/models and /health."
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Listener:
    """The interface to listen on, and which requests it accepts."""

    host: str = "127.0.0.1"
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.api_key and not is_loopback(self.host):
            raise UsageError(f"{self.host} can be reached from other machines. Set --api-key to serve there.")

    def refusal(self, request: web.Request) -> tuple[int, str, str] | None:
        """Status, message and code for a request that is not accepted; None for any other."""
        for header in ("Host", "Origin"):
            value = request.headers.get(header)
            name = origin(value or "").host if header == "Origin" else host_name(value or "")
            known = name in LOOPBACK or name == self.host or self.host in ("0.0.0.0", "::")
            if value and not known:
                return 403, f"{header} {value!r} is not this server's. Connect to {self.host}.", "foreign_host"
        if self.api_key and request.path != "/health":
            given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.api_key.encode()):
                return 401, "The API key is missing or wrong. Send it as a Bearer token.", "invalid_api_key"
        return None


class Server:
    """The routes, around one model."""

    def __init__(self, model: LocalModel, listener: Listener, *, aliases: tuple[str, ...] = ()) -> None:
        self.model = model
        self.listener = listener
        self.names = (model.name, *aliases)
        self.completions = LocalCompletions(model)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{name:.+}", self._one_model)
        app.router.add_post("/v1/chat/completions", partial(self._answer, api.ChatRequest))
        app.router.add_post("/v1/completions", partial(self._answer, api.CompletionRequest))
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check access, and turn every failure into the API's error shape."""
        if refused := self.listener.refusal(request):
            status, message, code = refused
            return _error(status, message, code=code)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, f"{request.method} {request.path}: {error.reason}. {ROUTES}")
        except ConnectionResetError:
            raise
        except Exception as error:
            if error_response(error)[0] == 500:
                logger.exception("a request failed")
            status, body = self.completions.failure(error)
            return web.json_response(body, status=status)

    async def _health(self, request: web.Request) -> web.Response:
        if trouble := self.model.engine.trouble:
            return web.json_response({"status": "unavailable", "reason": trouble}, status=503)
        stats = self.model.engine.stats()
        return web.json_response({"status": "ok", "running": stats["active"], "waiting": stats["queued"]})

    def _card(self) -> api.Json:
        return {
            "id": self.model.name,
            "object": "model",
            "created": 0,
            "owned_by": "benchmax",
            "max_model_len": self.model.context,
        }

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._card()]})

    async def _one_model(self, request: web.Request) -> web.Response:
        return self._unknown(request.match_info["name"]) or web.json_response(self._card())

    async def _answer(
        self, kind: type[api.ChatRequest | api.CompletionRequest], request: web.Request
    ) -> web.StreamResponse:
        body = kind.read(await _read(request))
        if unknown := self._unknown(body.model):
            return unknown
        if body.stream:
            return await _send_events(request, self.completions.stream(body))
        return web.json_response(await self.completions.whole(body))

    def _unknown(self, name: str) -> web.Response | None:
        if name in self.names:
            return None
        return _error(404, f"There is no model {name!r} here. Use {self.model.name!r}.", code="model_not_found")


async def start(
    model: LocalModel,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    aliases: tuple[str, ...] = (),
) -> tuple[web.AppRunner, int]:
    """Start serving in this event loop; returns the runner, to be cleaned up, and the port (0 picks one)."""
    server = Server(model, Listener(host, api_key), aliases=aliases)
    # Without cancellation a client that disconnected would keep its slot until the last token.
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise _not_bound(error, host, port) from error
    return runner, int(runner.addresses[0][1])


def check_port(host: str, port: int) -> None:
    """Raise UsageError for an address that cannot be served, before minutes of loading a model for it."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except UnicodeError as error:
        raise UsageError(f"{host!r} is no address of this machine. Choose another with --host.") from error
    except OSError as error:
        raise _not_bound(error, host, port) from error


def _not_bound(error: OSError, host: str, port: int) -> UsageError:
    taken = error.errno == errno.EADDRINUSE
    reason = f"Port {port} is taken" if taken else f"{host}:{port} cannot be bound ({error.strerror})"
    return UsageError(f"{reason}. Choose another with --port or --host.")


async def serve_until_stopped(
    model: LocalModel, *, on_ready: Callable[[str], None] = lambda url: None, **options: Any
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets the base URL."""
    runner, port = await start(model, **options)
    host = options.get("host", "127.0.0.1")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(name, stop.set)
    try:
        on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1")
        await stop.wait()
    finally:
        await runner.cleanup()


async def _read(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        # A web page may post any other type to localhost without a preflight request.
        raise ModelRejected("Send the request as JSON, with the header Content-Type: application/json.")
    try:
        return await request.read()
    except web.RequestPayloadError:
        raise ModelRejected("The request body is broken, or not packed as its Content-Encoding says.") from None


async def _send_events(request: web.Request, events: AsyncGenerator[api.Json, None]) -> web.StreamResponse:
    """Send server-sent events; an error before the first one is an ordinary error reply."""
    response = web.StreamResponse(headers={"Content-Type": sse.MEDIA_TYPE, "Cache-Control": "no-cache"})
    async with contextlib.aclosing(events) as stream:
        try:
            async for event in stream:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(sse.event(event))
        except StreamFailed as failure:
            if not response.prepared:
                raise
            logger.error("a stream failed: %s", failure)
            await response.write(sse.event(failure.body))
    await response.write(sse.DONE)
    await response.write_eof()
    return response


def _error(status: int, message: str, *, code: str | None = None) -> web.Response:
    return web.json_response(error_body(message, code=code), status=status)
