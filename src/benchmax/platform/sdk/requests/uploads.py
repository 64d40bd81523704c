"""Uploaded files, and uploading them: each attempt asks for an address and sends the file there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchmax.errors import UsageError
from benchmax.platform.sdk.calls import Request, Row, as_object, get, rows_in
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.wire.datasets import UPLOAD_TYPES

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

_TRIES = 3
_RETRIED_STATUSES = (None, 408, 502, 503, 504)


def list_files(prefix: str = "") -> Request[list[Row]]:
    """Uploads whose path begins so, with size and SHA-256."""
    return get("/v1/storage/files", rows_in("files"), prefix=prefix)


async def upload_file(
    exchange: Exchange, path: str, content: bytes, mime_type: str, *, expires_in_minutes: int | None = None
) -> Row:
    """Store bytes under `path`; returns `{uploadUrl, expiresAt, blobPath, willOverwrite}`."""
    return await _upload(exchange, path, mime_type, lambda: nullcontext(content), expires_in_minutes)


async def upload_local_file(
    exchange: Exchange, path: str, file_path: str | os.PathLike[str], *, expires_in_minutes: int | None = None
) -> Row:
    """Store a file under `path`, streamed from disk; its suffix says what it is."""
    file = Path(file_path)
    return await _upload(exchange, path, _mime_type(file), lambda: open(file, "rb"), expires_in_minutes)


def _mime_type(file: Path) -> str:
    known = UPLOAD_TYPES.get(file.suffix.lower())
    if known is None:
        raise UsageError(f"{file.name} is of a kind the platform does not take. Use {', '.join(UPLOAD_TYPES)}.")
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {file}. Check the path.")
    return known


async def _upload(
    exchange: Exchange,
    path: str,
    mime_type: str,
    open_content: Callable[[], AbstractContextManager[bytes | IO[bytes]]],
    minutes: int | None,
) -> Row:
    """Ask for an address and send the file there; an address works once, so each attempt has its own."""
    query = {"path": path, "mimeType": mime_type, "expiresInMinutes": minutes}
    for left in reversed(range(_TRIES)):
        permit = await exchange.ask(get("/v1/storage/upload-url", as_object, **query))
        try:
            await exchange.put(permit["uploadUrl"], mime_type, open_content())
            break
        except TrainerError as error:
            if not left or error.status_code not in _RETRIED_STATUSES:
                raise
    return permit
