"""Uploading files to the platform."""

from __future__ import annotations

from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.requests import uploads
from benchmax.platform.sdk.sync_and_async import procedure
from benchmax.platform.sdk.transport import AsyncConnection, Connection, Endpoint


class _StorageMethods(Endpoint):
    """What both clients offer."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        upload_timeout: float = 1800.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, base_url, timeout, token_provider)
        self._exchange.upload_timeout = upload_timeout

    upload_file = procedure(uploads.upload_file)
    upload_local_file = procedure(uploads.upload_local_file)


class StorageClient(_StorageMethods, Connection):
    """Uploads files to the platform."""


class AsyncStorageClient(_StorageMethods, AsyncConnection):
    """`StorageClient` for async code."""
