"""Uploading files: an address for each try, and the file sent there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

from benchmax.envs.datasets.readers import FORMATS
from benchmax.errors import UsageError
from benchmax.platform.sdk.calls import Procedure, Put, Row, as_object, ask, get
from benchmax.platform.sdk.exceptions import TrainerError

MIME_TYPES = {
    **{suffix: known.mime_type for suffix, known in FORMATS.items()},
    ".yaml": "text/yaml",
    ".yml": "text/yaml",
    ".pkl": "application/octet-stream",
    ".pickle": "application/octet-stream",
}
"""Files that can be uploaded."""
_TRIES = 3
_WORTH_A_RETRY = (None, 408, 502, 503, 504)


def upload_bytes(path: str, content: bytes, mime_type: str, minutes: int | None, timeout: float) -> Procedure[Row]:
    return _upload(path, mime_type, lambda: nullcontext(content), minutes, timeout)


def upload_file(path: str, file_path: str | os.PathLike[str], minutes: int | None, timeout: float) -> Procedure[Row]:
    file = Path(file_path)
    mime_type = MIME_TYPES.get(file.suffix.lower())
    if mime_type is None:
        raise UsageError(f"{file.name} is of a kind the platform does not take. Use {', '.join(MIME_TYPES)}.")
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {file}. Check the path.")
    return _upload(path, mime_type, lambda: open(file, "rb"), minutes, timeout)


def _upload(
    path: str,
    mime_type: str,
    open_content: Callable[[], AbstractContextManager[bytes | IO[bytes]]],
    minutes: int | None,
    timeout: float,
) -> Procedure[Row]:
    """Ask for an address and send the file there; an address works once, so each try has its own."""
    query = {"path": path, "mimeType": mime_type, "expiresInMinutes": minutes}
    for left in reversed(range(_TRIES)):
        permit = yield from ask(get("/v1/storage/upload-url", as_object, **query))
        try:
            yield Put(permit["uploadUrl"], mime_type, open_content, timeout)
            break
        except TrainerError as error:
            if not left or error.status_code not in _WORTH_A_RETRY:
                raise
    return permit
