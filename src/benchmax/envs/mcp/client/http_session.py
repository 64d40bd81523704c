"""A session with an MCP server over streamable HTTP: each request is a POST, answered by JSON or an event stream.

A server that ends a stream before its answer continues it on another one, and what it asks outside of any answer
arrives on a stream of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from benchmax import limits
from benchmax.envs.mcp.client.mcp_session import (
    MODERN,
    UNKNOWN_METHOD,
    McpSession,
    NoAnswer,
    RpcError,
    Unreadable,
    as_json,
    cancellation,
    messages_in,
    number_of,
    reply_to,
    result_of,
)
from benchmax.envs.mcp.client.output_tail import LINE_BYTES, TokenBucket
from benchmax.errors import McpError
from benchmax.net.sse import MEDIA_TYPE, EventReader, read_events

END_SECONDS = 2.0
"""How long a server may take to accept an answer, or the end of a session."""
MOST_REDIRECTS = 3
RETRY_SECONDS = 0.05
"""The pause between two attempts to connect."""
IDLE_SECONDS = 2.0
"""How long an idle connection is used again: less than servers keep one, so that they do not end it as it is used."""
NOT_YET = frozenset({502, 503, 504})
"""What is answered for a server that still starts."""


class _NotYet(McpError):
    """The server may still be starting."""


class HttpSession(McpSession):
    """Requests to one URL. `open` waits for a server that is still starting."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], shared: bool = False) -> None:
        super().__init__(name)
        self._shared = shared
        """Whether the server outlives the rollout, so that the session has to be closed there."""
        self._url = url
        accept = {"Accept": f"application/json, {MEDIA_TYPE}", "Content-Type": "application/json"}
        self._headers = {**accept, **headers}
        self._aside: set[asyncio.Task[None]] = set()
        """What goes on beside the requests: listening to the server, and telling it of cancelled calls."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # each request has its own
        )

    async def open(self, seconds: float) -> None:
        failure = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        await super().open(seconds)
                        break
                    except _NotYet as error:
                        failure = f": {error}"
                        if self.lost is not None:
                            raise McpError(self.lost) from None
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise NoAnswer(
                f"MCP server {self.name!r} did not answer at {self._url} within {seconds:g} s{failure}."
            ) from None
        if "Mcp-Session-Id" in self._headers:
            self._begin_aside(self._listen())

    def _begin_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def _agreed(self, version: str) -> None:
        self._headers["MCP-Protocol-Version"] = version

    async def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self.lost is not None:
            raise McpError(self.lost)
        number, body = self._numbered(method, params)
        try:
            async with asyncio.timeout(seconds):
                message = await self._post(number, body, self._headers_for(method, params))
        except TimeoutError:
            self._cancel(number)
            raise NoAnswer(f"MCP server {self.name!r} did not answer {method} within {seconds:g} s.") from None
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(method, error) from None
        return result_of(self.name, message)

    def _broken(self, method: str, error: Exception) -> McpError:
        unreachable = isinstance(error, aiohttp.ClientConnectorError)
        if method == "initialize":
            return _NotYet(str(error) if unreachable else f"it broke the connection: {type(error).__name__}")
        if unreachable:
            return McpError(f"MCP server {self.name!r} no longer listens.")
        return McpError(f"MCP server {self.name!r} broke the connection: {type(error).__name__}.")

    def _cancel(self, number: int) -> None:
        """Tell the server that a call is given up; from the modern protocol on, the end of the connection does."""
        if not self.modern and self.lost is None:
            self._begin_aside(self._tell(cancellation(number)))

    def _headers_for(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        if not self.modern:
            return self._headers
        stamped = {**self._headers, "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if isinstance(name := params.get("name"), str):
            stamped["Mcp-Name"] = name
        return stamped

    async def _post(self, number: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        for _ in range(MOST_REDIRECTS):
            answer = await self._post_once(number, body, headers)
            if answer is not None:
                return answer
        raise McpError(f"MCP server {self.name!r} redirects without end. Correct its url, {self._url}.")

    def _redirected(self, target: str) -> None:
        """Use another URL of the same server from now on; no other server gets the headers, which may hold keys."""
        address = urljoin(self._url, target)
        here, there = urlsplit(self._url), urlsplit(address)
        if not target or (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise McpError(f"MCP server {self.name!r} redirects to {address}. If that is right, write it as its url.")
        self._url = address

    async def _post_once(
        self, number: int, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """The answer; None when the server redirects."""
        async with self._http.post(self._url, data=as_json(body), headers=headers, allow_redirects=False) as response:
            if response.status in (301, 302, 307, 308):
                self._redirected(response.headers.get("Location", ""))
                return None
            if session := response.headers.get("Mcp-Session-Id"):
                self._headers["Mcp-Session-Id"] = session
            if response.content_type == MEDIA_TYPE:
                return await self._from_events(number, response)
            if response.status == 404 and "Mcp-Session-Id" in self._headers:
                raise self.fail(f"MCP server {self.name!r} has ended this rollout's session. Run the rollout again.")
            body_bytes = b"".join([chunk async for chunk in _chunks(response, self.name)])
            for message in _messages(body_bytes):
                if "result" in message or isinstance(message.get("error"), dict):
                    return message
            if response.status < 300:
                kind = response.content_type
                raise McpError(
                    f"MCP server {self.name!r} answered {kind} without a message. Check its url, {self._url}."
                )
            if response.status in NOT_YET and body["method"] == "initialize":
                raise _NotYet(f"it answered {response.status} {response.reason}")
            code = UNKNOWN_METHOD if response.status in (400, 404, 405) else 0
            hint = " Check its headers." if response.status in (401, 403) else ""
            if response.status in (404, 405):
                hint = f" Check its url, {self._url}: it must speak streamable HTTP, not the older SSE."
            raise RpcError(f"MCP server {self.name!r} answered {response.status} {response.reason}.{hint}", code)

    async def _from_events(self, number: int, response: aiohttp.ClientResponse) -> dict[str, Any]:
        reader = EventReader()
        answer = await self._read(response, reader, number)
        while answer is None and reader.last_id:
            await _pause(reader)
            async with self._stream({"Last-Event-ID": reader.last_id.decode("latin-1")}) as more:
                if not _is_stream(more):
                    break
                answer = await self._read(more, reader, number)
        if answer is None:
            raise McpError(f"MCP server {self.name!r} ended its answer early.")
        return answer

    def _stream(self, headers: Mapping[str, str]) -> Any:
        """A stream of what the server sends: from the last event that was read, or outside of any answer."""
        stamped = {**self._headers, "Accept": MEDIA_TYPE, **headers}
        return self._http.get(self._url, headers=stamped, allow_redirects=False)

    async def _read(
        self,
        response: aiohttp.ClientResponse,
        reader: EventReader,
        number: int | None = None,
        limit: TokenBucket | None = None,
    ) -> dict[str, Any] | None:
        """The answer to a request, if it comes in this stream. What the server asks meanwhile is answered."""
        async for data in read_events(_chunks(response, self.name), reader):
            if limit is not None and not limit.spend(len(data) + LINE_BYTES):
                raise self.fail(f"MCP server {self.name!r} was ended: it floods its event stream. Have it send less.")
            for message in _messages(data):
                if "method" not in message:
                    if number_of(message) == number:
                        return message
                elif "id" in message:
                    await self._tell(reply_to(message))
        return None

    async def _listen(self) -> None:
        """Read what the server sends outside of any answer, for as long as it offers a stream for that."""
        limit = TokenBucket()
        while self.lost is None:
            reader = EventReader()
            with suppress(McpError, aiohttp.ClientError, OSError):  # the next call reports a lost server
                async with self._stream({}) as response:
                    if not _is_stream(response):
                        return
                    await self._read(response, reader, limit=limit)
            await _pause(reader)

    async def _tell(self, message: Mapping[str, Any]) -> None:
        """Send an answer or a notification, which the server may await before it continues."""
        with suppress(McpError, TimeoutError):  # one that needed it reports that
            async with asyncio.timeout(END_SECONDS):
                await self._send(message)

    async def notify(self, method: str) -> None:
        await self._send({"jsonrpc": "2.0", "method": method})

    async def _send(self, message: Mapping[str, Any]) -> None:
        """Send a message that has no answer."""
        body = as_json(message)
        try:
            async with self._http.post(self._url, data=body, headers=self._headers, allow_redirects=False):
                pass
        except (aiohttp.ClientError, OSError) as error:
            raise McpError(f"MCP server {self.name!r} broke the connection: {type(error).__name__}.") from None

    async def close(self) -> None:
        for task in list(self._aside):
            task.cancel()
        if self._shared and self.lost is None and "Mcp-Session-Id" in self._headers:
            # Else it would stay on the server, with those of all rollouts; not every server supports this.
            with suppress(aiohttp.ClientError, OSError):
                async with asyncio.timeout(END_SECONDS), self._http.delete(self._url, headers=self._headers):
                    pass
        self.fail(f"MCP server {self.name!r} was stopped.")
        await self._http.close()


async def _pause(reader: EventReader) -> None:
    """Wait as long as the server asks before its stream is continued."""
    await asyncio.sleep(max(RETRY_SECONDS, reader.retry_seconds))


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    return response.status == 200 and response.content_type == MEDIA_TYPE


def _messages(text: bytes) -> list[dict[str, Any]]:
    """The messages of a text; none in one that cannot be read."""
    try:
        return messages_in(text)
    except Unreadable:
        return []


async def _chunks(response: aiohttp.ClientResponse, name: str) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limits.MCP_MESSAGE_BYTES:
            raise McpError(f"MCP server {name!r} sent more than {limits.MCP_MESSAGE_BYTES:,} bytes in one answer.")
        yield chunk
