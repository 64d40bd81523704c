"""Uploading files to the platform."""

from __future__ import annotations

import os

from benchmax.platform.sdk.calls import Row
from benchmax.platform.sdk.credentials import TokenProvider
from benchmax.platform.sdk.requests import uploads
from benchmax.platform.sdk.transport import AsyncConnection, Connection


class StorageClient(Connection):
    """Uploads files to the platform."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        upload_timeout: float = 1800.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, base_url, timeout, token_provider)
        self._upload_timeout = upload_timeout

    def upload_file(self, path: str, content: bytes, mime_type: str, *, expires_in_minutes: int | None = None) -> Row:
        """Store bytes under `path`; returns `{uploadUrl, expiresAt, blobPath, willOverwrite}`."""
        return self._run(uploads.upload_bytes(path, content, mime_type, expires_in_minutes, self._upload_timeout))

    def upload_local_file(
        self, path: str, file_path: str | os.PathLike[str], *, expires_in_minutes: int | None = None
    ) -> Row:
        """Store a file under `path`, streamed from disk; its suffix says what it is."""
        return self._run(uploads.upload_file(path, file_path, expires_in_minutes, self._upload_timeout))


class AsyncStorageClient(AsyncConnection):
    """Uploads files to the platform, in async code."""

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        upload_timeout: float = 1800.0,
        token_provider: TokenProvider | None = None,
    ) -> None:
        super().__init__(api_key, base_url, timeout, token_provider)
        self._upload_timeout = upload_timeout

    async def upload_file(
        self, path: str, content: bytes, mime_type: str, *, expires_in_minutes: int | None = None
    ) -> Row:
        """Store bytes under `path`; returns `{uploadUrl, expiresAt, blobPath, willOverwrite}`."""
        return await self._run(uploads.upload_bytes(path, content, mime_type, expires_in_minutes, self._upload_timeout))

    async def upload_local_file(
        self, path: str, file_path: str | os.PathLike[str], *, expires_in_minutes: int | None = None
    ) -> Row:
        """Store a file under `path`, streamed from disk; its suffix says what it is."""
        return await self._run(uploads.upload_file(path, file_path, expires_in_minutes, self._upload_timeout))
