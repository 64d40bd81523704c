"""What routes and services work with, in one object."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from benchmax.platform.server.security.rate_limits import Limiter
from benchmax.platform.server.security.scopes import AccessTable
from benchmax.platform.server.services.live_sessions import LiveSessionClient
from benchmax.platform.server.services.model_sessions import ModelSessions
from benchmax.platform.server.services.response_cache import ResponseCache
from benchmax.platform.server.services.run_feed import Feeds
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.uploads.blobs import BlobStore


class ServerServices:
    access_table: AccessTable
    """Set when all routes are known."""

    def __init__(self, settings: ServerSettings, database: Database) -> None:
        self.settings = settings
        self.data = settings.data
        self.database = database
        self.blobs = BlobStore(settings.data.blobs)
        self.vault = Vault(settings.data)
        self.limiter = Limiter(settings.limits_per_hour)
        self.feeds = Feeds(database)
        self.response_cache = ResponseCache()
        self.live_sessions = LiveSessionClient(settings.data)
        self.model_sessions = ModelSessions()


async def services_of(request: Request) -> ServerServices:
    """Async although it never waits: FastAPI would run a plain function in a thread."""
    found: ServerServices = request.app.state.services
    return found


Services = Annotated[ServerServices, Depends(services_of)]


async def address_of(request: Request, services: Services) -> str:
    return (services.settings.public_url or str(request.base_url)).rstrip("/")


Address = Annotated[str, Depends(address_of)]
"""Where the caller reaches this server."""
