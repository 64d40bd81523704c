"""The response that carries server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi.responses import StreamingResponse

from benchmax.net.sse import MEDIA_TYPE

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}, "description": "`data: {json}` lines"}
}
"""How the API describes such a route."""


def event_response(pieces: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """A response that is sent piece by piece and that proxies do not buffer."""
    unbuffered = {"X-Accel-Buffering": "no", **(headers or {})}
    return StreamingResponse(pieces, media_type=MEDIA_TYPE, headers=unbuffered)
