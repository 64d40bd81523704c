"""One MCP server spoken to: requests out, answers in, over its pipes or over HTTP.

A client of our own rather than the SDK's: it holds a fraction of the time per call, and a server that dies ends its
calls with an error and nothing else (the SDK's client may cancel the task that entered it). It knows what a pool needs:
the handshake of both eras of the protocol, listing and calling tools, reading resources, giving up on a call.

    until 2025-11-25   `initialize`, then a session
    from 2026-07-28    no session; every request carries the version and who asks
"""

from __future__ import annotations

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from benchmax import limits
from benchmax.envs.mcp.client.stdio_messages import Unreadable, messages_in, number_of
from benchmax.errors import McpError

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
_KEY = "io.modelcontextprotocol/"
_CLIENT = {"name": "benchmax", "version": "1"}
_META = {f"{_KEY}protocolVersion": MODERN, f"{_KEY}clientInfo": _CLIENT, f"{_KEY}clientCapabilities": {}}
_UNKNOWN_METHOD, _UNSUPPORTED = -32601, -32022
MOST_PAGES = 100
TAIL_LINES = 20
DOUBT_SECONDS = 1.0
"""Between the end of a server's output and taking it for lost."""
PROBE_SECONDS = 3.0
"""How long a server that let a call time out may take to answer a ping before the next is sent."""
MOST_DOUBTS = 5
"""Calls in a row that a server may leave without any answer."""
CHATTER_BYTES, CHATTER_PER_SECOND, LINE_BYTES = 4 * limits.MIB, limits.MIB, 256
"""What a server may print that answers nothing: at once, in a second, and how much a line counts at least."""
STRAY_LINES, STRAY_CHARS = 3, 120
"""Of output that is no message, for those who ask why a server does not answer."""
PAUSE_SECONDS = 0.25
"""How long nothing is read of a process that prints more."""


class RpcError(McpError):
    """The server answered a request with an error of the protocol."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code)


class NoAnswer(McpError):
    """The server did not answer in time; it may still be well."""


class Session(ABC):
    """A conversation with one server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modern = False
        self.lost: str | None = None
        """Why the server is of no more use, once it is."""
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The same, to be waited for."""
        self.ending = False
        """Whether its output has ended, and it is about to be known why."""
        self._doubts = 0
        self._probing: asyncio.Task[None] | None = None

    @abstractmethod
    async def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Ask, and wait for the result. RpcError when the server says no, McpError when it says nothing."""

    @abstractmethod
    async def notify(self, method: str) -> None: ...

    def fail(self, reason: str) -> None:
        """The server is of no more use; whoever waits is told why."""
        if self.lost is None:
            self.lost = reason
        if not self.failed.done():
            self.failed.set_result(self.lost)

    @abstractmethod
    async def close(self) -> None: ...

    async def open(self, seconds: float) -> None:
        """Shake hands, in the era that the server knows."""
        asked = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT}
        try:
            hello = await self.request("initialize", asked, seconds)
        except RpcError as error:
            if error.code not in (_UNKNOWN_METHOD, _UNSUPPORTED):
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
        """Which version both sides speak from here on."""

    def stamped(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": _META} if self.modern else params

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """Every tool, as the server describes it; a server of resources or prompts alone has none."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            try:
                page = await self.request("tools/list", params, seconds)
            except RpcError as error:
                if error.code != _UNKNOWN_METHOD:
                    raise
                return found
            listed = page.get("tools") or []
            if not isinstance(listed, list):
                raise McpError(f"MCP server {self.name!r} gives no list of tools. Correct the server.")
            found += listed
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}
        raise McpError(f"MCP server {self.name!r} lists tools without end. Correct its paging.")

    async def call(
        self, tool: str, arguments: Mapping[str, Any], seconds: float, as_task: bool = False
    ) -> dict[str, Any]:
        """A tool's result. `as_task`: the tool only runs as a task, whose result is asked for in a second request.

        A server that let a call time out is pinged before it is sent another, so that one that hangs costs
        `PROBE_SECONDS` a call and not all of its time; when it never answers, it is taken for lost.
        """
        if self._doubts:
            if self._probing is None or self._probing.done():
                self._probing = asyncio.ensure_future(self._probe())
            await asyncio.shield(self._probing)
        try:
            result = await self._call(tool, arguments, seconds, as_task)
        except NoAnswer:
            self._doubts = max(1, self._doubts)
            raise
        self._doubts = 0
        return result

    async def _probe(self) -> None:
        try:
            await self.ping(PROBE_SECONDS)
        except NoAnswer:
            self._doubts += 1
            if self._doubts > MOST_DOUBTS:
                self.fail(f"MCP server {self.name!r} hangs: it answers neither calls nor pings. Mend the server.")
                raise McpError(str(self.lost)) from None
            raise NoAnswer(
                f"MCP server {self.name!r} is still silent after a call that took too long, so this one was not sent."
            ) from None
        self._doubts = 0

    async def _call(
        self, tool: str, arguments: Mapping[str, Any], seconds: float, as_task: bool = False
    ) -> dict[str, Any]:
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
        if not as_task or self.modern:
            return await self.request("tools/call", params, seconds)
        began = monotonic()
        begun = await self.request("tools/call", {**params, "task": {"ttl": int(seconds * 1_000)}}, seconds)
        task = begun.get("task")
        if not isinstance(task, Mapping):
            return begun
        left = max(0.0, seconds - (monotonic() - began))
        return await self.request("tasks/result", {"taskId": task.get("taskId")}, left)

    async def ping(self, seconds: float) -> None:
        """Whether the server answers at all."""
        try:
            await self.request("server/discover" if self.modern else "ping", {}, seconds)
        except RpcError:  # an error is an answer too
            pass


def as_json(message: Mapping[str, Any]) -> bytes:
    """A message to a server. RpcError for numbers that JSON has no word for: many servers would not even answer."""
    try:
        return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise RpcError("The arguments hold NaN or an infinity, which is not JSON. Write a finite number.") from None


def result_of(name: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """What a response holds; its error is raised."""
    error = message.get("error")
    if isinstance(error, Mapping):
        raise RpcError(str(error.get("message") or "error")[: limits.ERROR_CHARS], _as_int(error.get("code")))
    result = message.get("result")
    if not isinstance(result, dict):
        raise RpcError(f"MCP server {name!r} gave an answer without a result. Correct the server.")
    return result


def _as_int(value: Any) -> int:
    return value if isinstance(value, int) else 0


class Allowance:
    """So much at once, and so much a second."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most, self._per_second = most, per_second
        self._left, self._at = most, monotonic()

    def spend(self, amount: float) -> bool:
        """Whether there was enough."""
        now = monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second) - amount
        self._at = now
        return self._left >= 0


class StdioSession(Session, asyncio.Protocol):
    """Lines of JSON over a process's pipes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._given_up: set[int] = set()
        """Requests whose answers may still come."""
        self.stray: list[str] = []
        """The first lines that were no messages."""
        self._chatter = Allowance(CHATTER_BYTES, CHATTER_PER_SECOND)
        self._rest: list[bytes] = []
        self._held = 0
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None

    async def connect(self, stdin: Any, stdout: Any) -> None:
        """Take the process's pipes, as open files."""
        self._writer, _ = await self._loop.connect_write_pipe(asyncio.Protocol, stdin)
        self._reader, _ = await self._loop.connect_read_pipe(lambda: self, stdout)

    async def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        number = next(self._numbers)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": self.stamped(params)}
        future = self._waiting[number] = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._give_up, number, method, seconds)
        try:
            self._send(body)
            return result_of(self.name, await future)
        except (asyncio.CancelledError, NoAnswer) as error:
            self._given_up.add(number)
            if isinstance(error, asyncio.CancelledError):
                self._cancel(number)
            raise
        finally:
            timer.cancel()
            self._waiting.pop(number, None)

    async def notify(self, method: str) -> None:
        self._send({"jsonrpc": "2.0", "method": method})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self.lost is not None or self._writer is None or self._writer.is_closing():
            raise McpError(self.lost or f"MCP server {self.name!r} is not running.")
        if self._writer.get_write_buffer_size() > limits.MCP_MESSAGE_BYTES:
            self.fail(f"MCP server {self.name!r} was ended: it does not read its input. Mend the server.")
            raise McpError(str(self.lost))
        self._writer.write(as_json(message) + b"\n")

    def _give_up(self, number: int, method: str, seconds: float) -> None:
        future = self._waiting.get(number)
        if future is not None and not future.done():
            self._cancel(number)
            words = f"MCP server {self.name!r} did not answer {method} within {seconds:g} s."
            future.set_exception(NoAnswer(words))

    def _cancel(self, number: int) -> None:
        try:
            params = {"requestId": number, "reason": "given up"}
            self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        except McpError:
            pass

    # What the server says

    def data_received(self, data: bytes) -> None:
        end = data.rfind(b"\n")
        if end < 0:
            self._keep(data)
            return
        self._rest.append(data[:end])
        text, self._rest, self._held = b"".join(self._rest), [], 0
        if end + 1 < len(data):
            self._keep(data[end + 1 :])
        for line in text.split(b"\n"):
            if self.lost is not None:
                return
            if not self._heard(line) and not self._chatter.spend(len(line) + LINE_BYTES):
                self.fail(
                    f"MCP server {self.name!r} was ended: it floods its output with what answers nothing. "
                    "Have it log to stderr, and less."
                )

    def _keep(self, data: bytes) -> None:
        self._rest.append(data)
        self._held += len(data)
        if self._held > limits.MCP_MESSAGE_BYTES:
            most = f"{limits.MCP_MESSAGE_BYTES:,} bytes"
            self.fail(f"MCP server {self.name!r} sent a message of more than {most}. Have it send less at once.")

    def _heard(self, line: bytes) -> bool:
        """Take a line; whether it answers something that was asked."""
        try:
            messages = messages_in(line)
        except Unreadable as error:
            words = f"MCP server {self.name!r} gave an answer that cannot be read. Correct the server."
            return error.number is not None and self._settle(error.number, {"error": {"message": words}})
        if not messages and len(self.stray) < STRAY_LINES and line.strip():
            self.stray.append(line[:STRAY_CHARS].decode("utf-8", "replace"))
        return sum(map(self._take, messages)) > 0

    def _take(self, message: dict[str, Any]) -> bool:
        if "method" in message:
            if "id" in message:
                self._answer(message)
            return False
        number = number_of(message)
        return number is not None and self._settle(number, message)

    def _settle(self, number: int, message: dict[str, Any]) -> bool:
        """Whether somebody waits for this answer, or did."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(message)
            return True
        late = number in self._given_up
        self._given_up.discard(number)
        return late

    def _answer(self, message: Mapping[str, Any]) -> None:
        """A request of the server's own: it may ask whether anybody is there, and nothing else."""
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "ping":
            reply["result"] = {}
        else:
            reply["error"] = {"code": _UNKNOWN_METHOD, "message": "not supported here"}
        try:
            self._send(reply)
        except McpError:
            pass

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost is not None:  # which is why it was closed
            return
        # Its process most often ended, and how is known in a moment; that is the better reason.
        self.ending = True
        self._loop.call_later(
            DOUBT_SECONDS, self.fail, f"MCP server {self.name!r} closed its output. Have it keep stdout open."
        )

    def fail(self, reason: str) -> None:
        super().fail(reason)
        assert self.lost is not None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(McpError(self.lost))
        self._close_pipes()

    def _close_pipes(self) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()
        if self._reader is not None:
            self._reader.close()

    async def close(self) -> None:
        self.fail(f"MCP server {self.name!r} was stopped.")


class Tail(asyncio.Protocol):
    """The last lines a process printed. One that prints without end is read slowly, and waits."""

    def __init__(self, tell: Callable[[str], None] | None = None, lines: deque[str] | None = None) -> None:
        self.lines: deque[str] = lines if lines is not None else deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._tell = tell
        self._allowance = Allowance(CHATTER_BYTES, CHATTER_PER_SECOND)
        self._transport: asyncio.ReadTransport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: limits.LOG_LINE_CHARS]
        for line in lines if self._tell is not None else lines[-TAIL_LINES:]:
            self._add(line)
        if not self._allowance.spend(len(data) + LINE_BYTES * len(lines)) and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _add(self, line: bytes) -> None:
        text = line[: limits.LOG_LINE_CHARS].decode("utf-8", "replace").rstrip("\r")
        self.lines.append(text)
        if self._tell is not None:
            self._tell(text)

    def connection_lost(self, error: Exception | None) -> None:
        if self._rest:
            self._add(self._rest)
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
