"""The client of one agent: one WebSocket connection, any number of concurrent requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import aiohttp

from benchmax.cross_loop import settle
from benchmax.envs.mcp.frame_socket import FrameSocket
from benchmax.envs.remote.wire import MESSAGE_BYTES, answer_of, pack
from benchmax.errors import McpError, UsageError

PROTOCOL = 1
Notice = Callable[[dict[str, Any]], None]


class WrongSecret(McpError):
    """The agent refuses this secret, so that another attempt is of no use."""


class AgentClient(FrameSocket):
    """Sends requests to the agent at one address. Everything here runs on one event loop."""

    def __init__(self, address: str, notice: Notice, lost: Callable[[AgentClient], None]) -> None:
        super().__init__()
        self.address = address
        self.hello: dict[str, Any] = {}
        self.failure: str | None = None
        """Why the connection can no longer be used, if so."""
        self._notice, self._lost = notice, lost
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._opening: set[int] = set()
        """Requests for a lease whose callers have not received it yet; when one is cancelled, its lease is closed."""
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, secret: str, seconds: float) -> None:
        """Connect; McpError when the agent cannot be reached, or refuses the secret."""
        unix = self.address.startswith("unix:")
        connector = aiohttp.UnixConnector(self.address.removeprefix("unix:")) if unix else aiohttp.TCPConnector()
        self._http = aiohttp.ClientSession(connector=connector, trust_env=False)
        url = "http://localhost/agent" if unix else f"http://{self.address}/agent"
        try:
            async with asyncio.timeout(seconds):
                self._socket = await self._http.ws_connect(
                    url, headers={"Authorization": f"Bearer {secret}"}, max_msg_size=2 * MESSAGE_BYTES,
                    heartbeat=20.0, compress=0,
                )  # fmt: skip
                first = list(self._frames.feed((await self._socket.receive()).data))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, TypeError) as error:
            await self.close()
            if isinstance(error, aiohttp.WSServerHandshakeError) and error.status == 401:
                raise WrongSecret(
                    f"The MCP agent at {self.address} does not know this secret. Give the one it was started with."
                ) from None
            why = _reason(error)
            raise McpError(f"The MCP agent at {self.address} cannot be reached: {why}. Check that it runs.") from None
        except asyncio.CancelledError:
            await self.close()
            raise
        self.hello = dict(first[0].get("hello") or {}) if first else {}
        if self.hello.get("protocol") != PROTOCOL:
            await self.close()
            raise McpError(f"The MCP agent at {self.address} is of another version. Update both sides.")
        self._tasks = [asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._send())]

    async def request(self, op: str, **fields: Any) -> Any:
        """Send a request and wait for the answer. Cancelling it cancels the work in the agent and closes its lease."""
        if self.failure is not None:
            raise McpError(self.failure)
        number = next(self._numbers)
        try:
            frame = pack({"id": number, "op": op, **fields})
        except (TypeError, ValueError) as error:
            raise UsageError(f"The arguments cannot reach the MCP server: {error}. Use plain JSON values.") from None
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        if op == "open":
            self._opening.add(number)
        self._post(frame)
        try:
            answer = await future
            self._opening.discard(number)
            return answer
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._close_unclaimed(number, future.result())  # it was granted just as its caller was cancelled
            if op != "close":
                self._post(pack({"cancel": number}))
            raise
        finally:
            self._waiting.pop(number, None)

    async def _send(self) -> None:
        assert self._socket is not None
        try:
            await self._send_posted(self._socket)
        except (aiohttp.ClientError, OSError) as error:
            self._fail(_reason(error))

    async def _receive(self) -> None:
        assert self._socket is not None
        try:
            await self._receive_all(self._socket)
            self._fail("it closed the connection")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._fail(_reason(error))

    def _received(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            self._notice(message)
            return
        future = self._waiting.get(number)
        if future is None or future.done():
            self._close_unclaimed(number, message.get("ok"))
        else:
            settle(future, *answer_of(message))

    def _close_unclaimed(self, number: int, given: Any) -> None:
        """Close a lease that was granted after its caller was cancelled."""
        if number in self._opening:
            self._opening.discard(number)
            if isinstance(given, dict):
                self._post(pack({"id": next(self._numbers), "op": "close", "token": given["token"]}))

    def _fail(self, reason: str) -> None:
        if self.failure is not None:
            return
        self._refuse(f"The machine that ran this rollout's MCP servers is lost: {reason}. Run the rollout again.")
        self._lost(self)

    def _refuse(self, failure: str) -> None:
        """From now on, every request fails for this reason."""
        self.failure = failure
        for future in self._waiting.values():
            settle(future, None, McpError(failure))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._refuse(self.failure or "The environment was shut down. Make a new one.")
        if self._socket is not None:
            await self._socket.close()
        if self._http is not None:
            await self._http.close()


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"it answered {error.status}"
    return str(error) or type(error).__name__
