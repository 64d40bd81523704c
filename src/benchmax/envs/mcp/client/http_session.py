"""A session with an MCP server over streamable HTTP: each request is a POST, answered by JSON or an event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
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
    as_json,
    reply_to,
    result_of,
)
from benchmax.envs.mcp.client.stdio_messages import Unreadable, messages_in, number_of
from benchmax.errors import McpError
from benchmax.net.sse import MEDIA_TYPE, read_events

END_SECONDS = 2.0
"""How long a server may take to accept an answer, or the end of a session."""
MOST_REDIRECTS = 3
RETRY_SECONDS = 0.05
"""The pause between two attempts to connect."""


class HttpSession(McpSession):
    """Requests to one URL. `open` waits for a server that is still starting."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], shared: bool = False) -> None:
        super().__init__(name)
        self._shared = shared
        """Whether the server outlives the rollout, so that the session has to be closed there."""
        self._url = url
        accept = {"Accept": f"application/json, {MEDIA_TYPE}", "Content-Type": "application/json"}
        self._headers = {**accept, **headers}
        self._http = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # each request has its own
        )

    async def open(self, seconds: float) -> None:
        failure = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await super().open(seconds)
                    except (ConnectionRefusedError, aiohttp.ClientConnectorError) as error:
                        failure = f": {error}"
                        if self.lost is not None:
                            raise McpError(self.lost) from None
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise NoAnswer(
                f"MCP server {self.name!r} did not answer at {self._url} within {seconds:g} s{failure}."
            ) from None

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
            raise NoAnswer(f"MCP server {self.name!r} did not answer {method} within {seconds:g} s.") from None
        except aiohttp.ClientConnectorError:
            if method == "initialize":
                raise
            raise McpError(f"MCP server {self.name!r} no longer listens.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise McpError(f"MCP server {self.name!r} broke the connection: {type(error).__name__}.") from None
        return result_of(self.name, message)

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
            code = UNKNOWN_METHOD if response.status in (400, 404, 405) else 0
            hint = " Check its headers." if response.status in (401, 403) else ""
            if response.status in (404, 405):
                hint = f" Check its url, {self._url}: it must speak streamable HTTP, not the older SSE."
            raise RpcError(f"MCP server {self.name!r} answered {response.status} {response.reason}.{hint}", code)

    async def _from_events(self, number: int, response: aiohttp.ClientResponse) -> dict[str, Any]:
        async for data in read_events(_chunks(response, self.name)):
            for message in _messages(data):
                if "method" not in message:
                    if number_of(message) == number:
                        return message
                elif "id" in message:
                    await self._reply(message)
        raise McpError(f"MCP server {self.name!r} ended its answer early.")

    async def _reply(self, request: Mapping[str, Any]) -> None:
        """Answer a request of the server, which may wait for that before it continues."""
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._send(reply_to(request))
        except (McpError, TimeoutError):  # one that needed the answer reports it
            pass

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
        if self._shared and self.lost is None and "Mcp-Session-Id" in self._headers:
            await self._end_session()
        self.fail(f"MCP server {self.name!r} was stopped.")
        await self._http.close()

    async def _end_session(self) -> None:
        """End the session on the server, which would otherwise keep those of all rollouts."""
        try:
            async with asyncio.timeout(END_SECONDS), self._http.delete(self._url, headers=self._headers):
                pass
        except (aiohttp.ClientError, OSError):  # servers need not support this
            pass


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
