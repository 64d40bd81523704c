"""Assembles the server and starts it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import FastAPI

from benchmax.errors import UsageError
from benchmax.files.atomic import read_object, write_text
from benchmax.memory import gc_frozen
from benchmax.models.address_rules import AddressRules
from benchmax.platform.server import error_responses, logs, threads
from benchmax.platform.server.routes import console
from benchmax.platform.server.routes.routers import ROUTERS
from benchmax.platform.server.security.middleware import Guard
from benchmax.platform.server.security.scopes import AccessTable
from benchmax.platform.server.server_services import ServerServices
from benchmax.platform.server.services.live_sessions import reach_of
from benchmax.platform.server.services.webhooks import Sender
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.accounts import api_keys, logins, users
from benchmax.platform.store.database import Database, open_database
from benchmax.platform.store.uploads import unused_blobs
from benchmax.platform.wire.base import Problem
from benchmax.platform.wire.values import SCOPES

if TYPE_CHECKING:
    import uvicorn

STOP_SECONDS = 2.0
LOCAL_USER = "local@localhost"


def create_app(settings: ServerSettings, database: Database) -> FastAPI:
    """The app; RuntimeError when a route is in no list of `scopes`."""
    logs.configure()
    services = ServerServices(settings, database)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        threads.prepare()
        services.blobs.sweep()  # one data directory has one server: nobody uploads now
        with database.write() as db:
            users.forget_removed(db)
            unused_blobs.sweep(db, services.blobs)
        rules = AddressRules.of(reach_of(settings))
        sending = asyncio.create_task(Sender(database, services.vault, rules, base_url(settings)).run())
        yield
        sending.cancel()
        await asyncio.wait([sending], timeout=STOP_SECONDS)  # one of its threads may wait for the database
        await services.feeds.aclose()

    app = FastAPI(
        title="benchmax",
        description="Train language models on environments written in Python.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={status: {"model": Problem} for status in (400, 401, 403, 404)},
    )
    app.state.services = services
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(console.pages(settings.console))
    error_responses.install(app)
    app.add_exception_handler(404, console.unknown(settings.console))
    services.access_table = AccessTable(app)
    app.add_middleware(Guard, services=services)
    return app


def prepare(settings: ServerSettings, database: Database) -> str:
    """Make the first user, and the local key if none works; returns the address of a one-time sign-in."""
    with database.write() as db:
        if not settings.is_loopback and not users.any_password(db):
            raise UsageError(
                f"{settings.host} can be reached by others, and no user has a password. Serve on 127.0.0.1, "
                "make a user with a password there (`create_user`), then serve here."
            )
        user = users.ensure_user(db, LOCAL_USER, role="admin")
        link = logins.create_link(db, user.id)
        known = str(read_object(settings.data.credentials).get("api_key", ""))
        if api_keys.find_key(db, known) is None:  # this machine has no key, or one of another database
            _, key = api_keys.create_key(db, user.id, name="this machine", scopes=SCOPES)
            write_text(settings.data.credentials, json.dumps({"url": base_url(settings), "api_key": key}), private=True)
    return f"{base_url(settings)}/login?token={link}"


def base_url(settings: ServerSettings) -> str:
    if settings.public_url:
        return settings.public_url.rstrip("/")
    host = settings.reached_at
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def serve(settings: ServerSettings, wait: float = 0.0) -> None:
    """Run the server until it is stopped. One data directory has one server; another may take `wait` to end."""
    os.umask(0o077)
    start = _Start()
    settings.data.create()
    with ExitStack() as stack:
        stack.enter_context(settings.data.lock("server", wait))
        listener = stack.enter_context(_listen(settings.host, settings.port))
        settings = replace(settings, port=listener.getsockname()[1])
        database = open_database(settings.data, settings.database_url)
        stack.callback(database.close)
        prepare(settings, database)
        app = create_app(settings, database)
        info = {"url": base_url(settings), "pid": os.getpid(), "started": time.time()}
        stack.callback(settings.data.server_info.unlink, missing_ok=True)
        write_text(settings.data.server_info, json.dumps(info), private=True)
        # No link to sign in with: this goes into a log that is kept.
        print(f"benchmax is at {base_url(settings)}", flush=True)  # noqa: T201
        _run(app, settings, listener, start)


class _Start:
    """Handles SIGTERM until uvicorn does. What a signal handler raises is lost inside a callback, and every import has
    one: so the signal is remembered as well."""

    def __init__(self) -> None:
        self._stopped = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._stopped = True
        sys.exit(0)

    def hand_over(self, server: uvicorn.Server) -> None:
        """The server ends in order from now on. uvicorn then sends itself the signal again, which changes nothing."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        if self._stopped:
            server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket: from now on callers wait instead of being refused."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
        # The protocol is named because asyncio sets TCP_NODELAY only then; without it every answer waits 40 ms.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise UsageError(f"Cannot serve on {host}:{port}: {error.strerror}. Choose another with --port.") from None
    listener.listen(2048)
    return listener


def _run(app: FastAPI, settings: ServerSettings, listener: socket.socket, start: _Start) -> None:
    import uvicorn

    from benchmax.platform.server.security import connection_limits

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=",".join(settings.trusted_proxies) or None,
        timeout_graceful_shutdown=3,
        **connection_limits.options(),
    )
    connection_limits.prepare_process()
    server = uvicorn.Server(config)
    start.hand_over(server)
    with gc_frozen():  # a collection of all that was imported would hold up every request
        server.run(sockets=[listener])
