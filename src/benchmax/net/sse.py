"""Server-sent events (the WHATWG standard): writing one, and reading those of a stream.

    yield sse.event({"step": 3})
    async for data in sse.read_events(response.content.iter_any()):
        json.loads(data)

Read here rather than by a package such as httpx-sse, because streams come from three HTTP libraries as pieces of bytes.
Lines end with LF or CRLF; a lone CR, which the standard also allows, is not supported: no server writes one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

MEDIA_TYPE = "text/event-stream"
ALIVE = b": alive\n\n"
"""A comment, which is no event: it keeps a connection open."""
DONE = b"data: [DONE]\n\n"
"""The last event of a chat completion, as OpenAI's API has it."""


def event(value: Any) -> bytes:
    """An event with a value as JSON."""
    return encoded_event(json.dumps(value).encode())


def encoded_event(data: bytes, event_id: int | None = None) -> bytes:
    """An event with text that has no line break, such as JSON; a reader that lost the connection names the last id."""
    return (b"" if event_id is None else b"id: %d\n" % event_id) + b"data: " + data + b"\n\n"


async def read_events(pieces: AsyncIterable[bytes], reader: EventReader | None = None) -> AsyncIterator[bytes]:
    """The data of every event of a stream."""
    reader = reader or EventReader()
    async for piece in pieces:
        for data in reader.feed(piece):
            yield data
    for data in reader.end():
        yield data


class EventReader:
    """Reads events from pieces of any size; only their data, the lines of one event joined by line feeds."""

    def __init__(self) -> None:
        self.last_id = b""
        """The id of the last event that had one, from which a server can continue a stream that it ended."""
        self.retry_seconds = 1.0
        """How long the server asks to wait before that."""
        self._line: list[bytes] = []
        """Parts of a line that has not ended: joined once, as it may be long."""
        self._data: list[bytes] = []
        """The lines so far of an event that has not ended."""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece; an event without data is left out."""
        found = []
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._line.append(part)
            line = b"".join(self._line).removesuffix(b"\r")
            self._line.clear()
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            elif name == b"id":
                self.last_id = value.strip()
            elif name == b"retry" and value.strip().isdigit():
                self.retry_seconds = int(value) / 1_000
            elif not line:
                found.append(b"\n".join(self._data))
                self._data.clear()
        self._line.append(rest)
        return [data for data in found if data]

    def end(self) -> list[bytes]:
        """The data of a last event that no blank line follows; the standard drops it, servers mean it."""
        return self.feed(b"\n\n")
