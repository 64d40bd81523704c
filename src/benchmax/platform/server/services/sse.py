"""Server-sent events: how one is written, and the answer they come in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi.responses import StreamingResponse

ALIVE = b": alive\n\n"
"""A comment: it is no event, and keeps the connection open."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "`data: {json}` lines"}
}
"""How the API describes a route that answers with them."""


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def response(pieces: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """What is sent as it comes; no proxy holds it back."""
    unbuffered = {"X-Accel-Buffering": "no", **(headers or {})}
    return StreamingResponse(pieces, media_type="text/event-stream", headers=unbuffered)
