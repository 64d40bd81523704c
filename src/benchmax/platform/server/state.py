"""What the routes work with, in one object."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from benchmax.platform.server.security.access import Doors
from benchmax.platform.server.security.middleware import Limiter
from benchmax.platform.server.services.live_sessions import Sessions
from benchmax.platform.server.services.response_cache import Charts
from benchmax.platform.server.services.sse import Feeds
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.uploads.blobs import BlobStore


class Platform:
    doors: Doors
    """Set when all routes are known."""

    def __init__(self, settings: ServerSettings, database: Database) -> None:
        self.settings = settings
        self.data = settings.data
        self.database = database
        self.blobs = BlobStore(settings.data.blobs)
        self.vault = Vault(settings.data)
        self.limiter = Limiter(settings.limits_per_hour)
        self.feeds = Feeds(database)
        self.charts = Charts()
        self.sessions = Sessions(settings.data)


async def platform_of(request: Request) -> Platform:
    """Async, as it waits for nothing: a plain function would be sent to a thread."""
    found: Platform = request.app.state.platform
    return found


Here = Annotated[Platform, Depends(platform_of)]
