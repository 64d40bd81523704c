"""A session with one MCP server: the protocol, without the transport (stdio_session.py, http_session.py).

Written here rather than taken from the SDK: a call takes a fraction of the time, and a server that dies ends its calls
with an error and nothing else (the SDK's client may cancel the task that entered it). It does what a pool needs: the
handshake of both versions of the protocol, listing and calling tools, reading resources, cancelling a call.

    until 2025-11-25   `initialize`, then a session
    from 2026-07-28    no session; every request carries the version and the client's name
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from benchmax import limits
from benchmax.cross_loop import settle
from benchmax.errors import McpError

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
_KEY = "io.modelcontextprotocol/"
_CLIENT = {"name": "benchmax", "version": "1"}
_META = {f"{_KEY}protocolVersion": MODERN, f"{_KEY}clientInfo": _CLIENT, f"{_KEY}clientCapabilities": {}}
UNKNOWN_METHOD, _UNSUPPORTED = -32601, -32022
_SURROGATE = re.compile(r"\\ud[89a-f]")
_BEGIN = b'{"jsonrpc"'
_ID = re.compile(rb'"id"\s*:\s*"?(\d{1,15})\b')
_NEAR_BYTES = 256
"""How much of a line's start and end is searched for an id when the line cannot be parsed."""
MOST_PAGES = 100
MOST_NESTED = 100
"""How deep a message may be nested; some servers do not answer a message of 200 levels."""
PROBE_SECONDS = 3.0
"""How long a server that let a call time out may take to answer a ping before the next call."""
MOST_UNANSWERED = 5
"""A server that leaves more calls and pings in a row unanswered counts as lost."""


class RpcError(McpError):
    """The server answered a request with an error of the protocol."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code)


class NoAnswer(McpError):
    """The server did not answer in time; it may still run."""


class Unreadable(ValueError):
    """A message that is not valid JSON, or nested too deep."""

    def __init__(self, number: int | None) -> None:
        super().__init__("unreadable message")
        self.number = number


class McpSession(ABC):
    """A session with one server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modern = False
        self.lost: str | None = None
        """Why the server can no longer be used, if so."""
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The same, as a future."""
        self.ending = False
        """Whether its output has ended, so that its exit status is about to arrive."""
        self._unanswered = 0
        self._probing: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)

    @abstractmethod
    async def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the result; RpcError when the server answers with an error, else McpError."""

    @abstractmethod
    async def notify(self, method: str) -> None: ...

    def fail(self, reason: str) -> McpError:
        """Mark the server as lost; pending requests raise the error that is returned."""
        self.lost = self.lost or reason
        settle(self.failed, self.lost)
        return McpError(self.lost)

    @abstractmethod
    async def close(self) -> None: ...

    async def open(self, seconds: float) -> None:
        """Initialise the session, in the version of the protocol that the server knows."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT}
        try:
            hello = await self.request("initialize", params, seconds)
        except RpcError as error:
            if error.code not in (UNKNOWN_METHOD, _UNSUPPORTED):
                raise
            self.modern = True
            await self.request("server/discover", {}, seconds)
            return
        version = hello.get("protocolVersion")
        if not isinstance(version, str):
            raise McpError(f"MCP server {self.name!r} does not say which protocol it speaks. Correct the server.")
        if version > HANDSHAKE:
            raise McpError(
                f"MCP server {self.name!r} speaks protocol {version!r}, which is not known. Update benchmax."
            )
        self._agreed(version)
        await self.notify("notifications/initialized")

    def _agreed(self, version: str) -> None:
        """Called with the agreed version."""

    def _numbered(self, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A new number, and the request with it."""
        number, params = next(self._numbers), {**params, "_meta": _META} if self.modern else params
        return number, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """Every tool as the server describes it; a server of resources or prompts may have none."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            try:
                page = await self.request("tools/list", params, seconds)
            except RpcError as error:
                if error.code != UNKNOWN_METHOD:
                    raise
                return found
            listed = page.get("tools") or []
            if not isinstance(listed, list):
                raise McpError(f"MCP server {self.name!r} does not list its tools. Correct the server.")
            found += listed
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}
        raise McpError(f"MCP server {self.name!r} lists tools without end. Correct its paging.")

    async def call(
        self, tool: str, arguments: Mapping[str, Any], seconds: float, as_task: bool = False
    ) -> dict[str, Any]:
        """A tool's result. `as_task`: the tool runs only as a task, whose result takes a second request.

        A server that let a call time out is pinged before the next call, so that each call to one that hangs takes
        `PROBE_SECONDS` and not its whole timeout; one that never answers counts as lost.
        """
        if self._unanswered:
            if self._probing is None or self._probing.done():
                self._probing = asyncio.ensure_future(self._probe())
            await asyncio.shield(self._probing)
        try:
            result = await self._call(tool, arguments, seconds, as_task)
        except NoAnswer:
            self._unanswered = max(1, self._unanswered)
            raise
        self._unanswered = 0
        return result

    async def _probe(self) -> None:
        try:
            await self.ping(PROBE_SECONDS)
        except NoAnswer:
            self._unanswered += 1
            if self._unanswered > MOST_UNANSWERED:
                raise self.fail(
                    f"MCP server {self.name!r} hangs: it answers neither calls nor pings. Correct the server."
                ) from None
            raise NoAnswer(
                f"MCP server {self.name!r} has not answered since a call timed out, so this call was not sent."
            ) from None
        self._unanswered = 0

    async def _call(self, tool: str, arguments: Mapping[str, Any], seconds: float, as_task: bool) -> dict[str, Any]:
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
        if not as_task or self.modern:
            return await self.request("tools/call", params, seconds)
        began = monotonic()
        answer = await self.request("tools/call", {**params, "task": {"ttl": int(seconds * 1_000)}}, seconds)
        task = answer.get("task")
        if not isinstance(task, Mapping):
            return answer
        left = max(0.0, seconds - (monotonic() - began))
        return await self.request("tasks/result", {"taskId": task.get("taskId")}, left)

    async def ping(self, seconds: float) -> None:
        """Return when the server answers anything at all."""
        with suppress(RpcError):  # an error is an answer too
            await self.request("server/discover" if self.modern else "ping", {}, seconds)


def as_json(message: Mapping[str, Any]) -> bytes:
    """A message as JSON that every server can read; RpcError for others, which many servers would not even answer."""
    try:
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise RpcError("The arguments contain NaN or an infinity, which is not JSON. Write a finite number.") from None
    if _SURROGATE.search(text):
        try:
            json.dumps(message, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            half = "half of a character (a lone surrogate)"
            raise RpcError(f"The arguments contain {half}. Write the whole character.") from None
    if _is_deeper(message, MOST_NESTED):
        raise RpcError(f"The arguments are nested more than {MOST_NESTED} deep. Write them flatter.")
    return text.encode()


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)


def cancellation(number: int) -> dict[str, Any]:
    """The notification that the answer to a request is no longer awaited."""
    params = {"requestId": number, "reason": "cancelled"}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def reply_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request of the server: only ping is supported."""
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    if request["method"] == "ping":
        return {**reply, "result": {}}
    return {**reply, "error": {"code": UNKNOWN_METHOD, "message": "not supported here"}}


def result_of(name: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a response; raises its error."""
    if (error := message.get("error")) is not None:
        error = error if isinstance(error, Mapping) else {"message": error}
        reason = error.get("message") or error.get("data") or "error"
        code = error.get("code")
        raise RpcError(str(reason)[: limits.ERROR_CHARS], code if isinstance(code, int) else 0)
    result = message.get("result")
    if not isinstance(result, dict):
        raise RpcError(f"MCP server {name!r} sent an answer without a result. Correct the server.")
    if (kind := result.get("resultType", "complete")) != "complete":
        raise RpcError(f"MCP server {name!r} wants more from its user ({kind!r:.40}), and there is none here.")
    return result


def messages_in(line: bytes) -> list[dict[str, Any]]:
    """The messages of a line, body or event, read leniently: usually one, none when it is something else.

    It may begin with a byte order mark, or with output that was printed before without a newline, and may hold a list.
    """
    text = line.strip(b" \t\r\n\xef\xbb\xbf")
    if not text.startswith((b"{", b"[")):
        begin = text.find(_BEGIN)
        if begin < 0:
            return []
        text = text[begin:]
    try:
        found = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        if b'"jsonrpc"' not in text[:_NEAR_BYTES]:
            return []
        match = _ID.search(text[:_NEAR_BYTES]) or _ID.search(text[-_NEAR_BYTES:])
        raise Unreadable(int(match[1]) if match else None) from None
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]


def number_of(message: dict[str, Any]) -> int | None:
    """The id of the request that a message answers, also when it is a text or a fraction."""
    number = message.get("id")
    if isinstance(number, str) and number.isascii() and number.isdigit():
        return int(number)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
