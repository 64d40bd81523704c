"""The protocol between a process and its environment's: length-prefixed JSON, and nothing executable.

    frame = length (4 bytes) · kind (1 byte) · JSON

Kind 1 means that some values are tagged, such as `{"$benchmax": "ToolResult", …}`; most frames have none, and their
dicts are used as they are. A list of messages loses its `completion_start` in JSON, so it is sent separately.
"""

from __future__ import annotations

import asyncio
import base64
import json
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from struct import Struct
from typing import Any

from benchmax import errors, limits
from benchmax.envs.types import ToolDefinition, ToolResult, Transcript, Unscored
from benchmax.errors import PLACE, BenchmaxError, error_message, place_of

FRAME_BYTES = 64 * limits.MIB
"""The largest message."""
_HEAD = Struct("!IB")
MESSAGE_BYTES = FRAME_BYTES + _HEAD.size
"""The most that is sent at once: one frame always fits, and many small ones."""
_TAG = "$benchmax"


class _Encoder(json.JSONEncoder):
    tagged = False

    def default(self, value: Any) -> Any:
        self.tagged = True
        match value:
            case Unscored():
                return {_TAG: "Unscored", "reason": value.reason}
            case ToolResult():
                return {_TAG: "ToolResult", "text": value.text, "is_error": value.is_error, "parts": value.parts}
            case ToolDefinition():
                return {
                    _TAG: "ToolDefinition", "name": value.name, "description": value.description,
                    "input_schema": value.input_schema,
                }  # fmt: skip
            case bytes():
                return {_TAG: "bytes", "base64": base64.b64encode(value).decode()}
            case PurePath():
                return {_TAG: "Path", "path": str(value)}
            case Mapping():
                return dict(value)
        if callable(getattr(value, "item", None)) and getattr(value, "shape", None) == ():
            return value.item()
        raise TypeError(f"a {type(value).__name__} is not JSON")


def _untag(value: dict[str, Any]) -> Any:
    if _TAG not in value:
        return value
    try:
        return _UNTAG[value[_TAG]](value)
    except (KeyError, TypeError, ValueError):  # a user's own data that looks like a tag
        return value


_UNTAG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Unscored": lambda value: Unscored(str(value["reason"])),
    "ToolResult": lambda value: ToolResult(str(value["text"]), bool(value["is_error"]), tuple(value["parts"])),
    "ToolDefinition": lambda value: ToolDefinition(value["name"], value["description"], value["input_schema"]),
    "bytes": lambda value: base64.b64decode(value["base64"]),
    "Path": lambda value: Path(value["path"]),
}


def pack(message: Mapping[str, Any]) -> bytes:
    """A message as a frame; raises TypeError or ValueError when it is not JSON."""
    encoder = _Encoder(separators=(",", ":"))
    try:
        body = encoder.encode(message).encode("ascii")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if len(body) > FRAME_BYTES:
        raise ValueError(f"it has {len(body):,} bytes as JSON; at most {FRAME_BYTES:,} can be sent")
    return _HEAD.pack(len(body), encoder.tagged) + body


def next_frames(outbox: list[bytes]) -> bytes:
    """The next frames to send together: all that wait, or as many as a message of `MESSAGE_BYTES` holds."""
    size = count = 0
    while count < len(outbox) and (not count or size + len(outbox[count]) <= MESSAGE_BYTES):
        size += len(outbox[count])
        count += 1
    data = b"".join(outbox[:count])
    del outbox[:count]
    return data


class Frames:
    """Splits what arrives on a socket into messages; raises ValueError when it does not consist of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _HEAD.size:
                length, tagged = _HEAD.unpack_from(buffer, at)
                if length > FRAME_BYTES:
                    raise ValueError("a message is too large")
                end = at + _HEAD.size + length
                if len(buffer) < end:
                    break
                message = _parse(buffer[at + _HEAD.size : end].decode("ascii"), tagged)
                at = end
                yield message
        finally:
            del buffer[:at]


class FrameProtocol(asyncio.Protocol):
    """Frames over a socket of an event loop; what is sent in one iteration of the loop is written at once."""

    from_threads = False
    """Whether `send` is called from other threads, too."""

    def __init__(self, frames: Frames | None = None) -> None:
        self._frames = frames or Frames()
        self._outbox: deque[bytes] = deque()
        self._flushing = False
        self._transport: asyncio.Transport | None = None

    def received(self, message: dict[str, Any]) -> None:
        """Called with each message."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._soon = loop.call_soon_threadsafe if self.from_threads else loop.call_soon

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self.received(message)

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_frame(pack(message))

    def send_frame(self, frame: bytes) -> None:
        self._outbox.append(frame)
        if not self._flushing:
            self._flushing = True
            try:
                self._soon(self.flush)
            except RuntimeError:  # the loop is closed: the process is about to end
                pass

    def flush(self) -> None:
        """Write what waits."""
        self._flushing = False
        frames = [self._outbox.popleft() for _ in range(len(self._outbox))]
        if frames and self._transport is not None:
            self._transport.write(b"".join(frames))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _parse(body: str, tagged: int) -> dict[str, Any]:
    try:
        message = json.loads(body, object_hook=_untag if tagged else None)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a message is not an object")
    return message


# Conversations


def transcript_starts(kwargs: Mapping[str, Any]) -> dict[str, int | list[int]]:
    """Where the completions start in the transcripts among the arguments."""
    starts: dict[str, int | list[int]] = {}
    for name, value in kwargs.items():
        if isinstance(value, Transcript):
            starts[name] = value.completion_start
        elif isinstance(value, list) and value and all(isinstance(each, Transcript) for each in value):
            starts[name] = [each.completion_start for each in value]
    return starts


def restore_transcripts(kwargs: dict[str, Any], starts: Mapping[str, int | list[int]]) -> None:
    """Turn the lists that were transcripts into transcripts again."""
    for name, start in starts.items():
        if isinstance(start, int):
            kwargs[name] = Transcript(kwargs[name], start)
        else:
            kwargs[name] = [Transcript(each, at) for each, at in zip(kwargs[name], start, strict=True)]


# Errors


def describe(error: BaseException) -> dict[str, Any]:
    """An error as plain data."""
    kinds = (each.__name__ for each in type(error).__mro__ if each.__module__ == errors.__name__)
    trace = "".join(traceback.format_exception(error))
    return {
        "type": type(error).__name__,
        "kind": next(kinds, None),
        "message": error_message(error)[: limits.ERROR_CHARS],
        "place": place_of(error),
        "traceback": trace[-limits.ERROR_CHARS :],
    }


class RemoteError(Exception):
    """An error of the environment's own classes; its subclasses have the names of those classes."""


def rebuild(described: Mapping[str, Any]) -> Exception:
    """The error to raise on this side: one of benchmax's own, or a class with the name the error had."""
    name, kind = str(described.get("type")), described.get("kind")
    base: Any = getattr(errors, kind, None) if isinstance(kind, str) else None
    if not (isinstance(base, type) and issubclass(base, BenchmaxError)):
        base = RemoteError
    error = _error_class(name, base)(str(described.get("message")))
    error.__dict__[PLACE] = described.get("place")
    if trace := str(described.get("traceback") or ""):
        error.add_note(f"In the environment's process:\n{trace}")
    return error


def answer_of(message: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """The value in an answer, and the error if it is one."""
    return message.get("ok"), rebuild(message["error"]) if "error" in message else None


@lru_cache(maxsize=256)
def _error_class(name: str, base: Any) -> type[Exception]:
    """A class with the same name, so that records are the same with one process or two."""
    if name == base.__name__ or not name.isidentifier() or len(name) > 80:
        return base  # type: ignore[no-any-return]
    return type(name, (base,), {"__reduce__": lambda self: (base, (str(self),)), "__module__": __name__})
