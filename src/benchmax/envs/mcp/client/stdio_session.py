"""A session with an MCP server over the pipes of its process: one JSON message a line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from benchmax import limits
from benchmax.cross_loop import settle
from benchmax.envs.mcp.client.mcp_session import (
    McpSession,
    NoAnswer,
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

EXIT_SECONDS = 1.0
"""How long to wait for a process's exit status after the end of its output."""
STRAY_LINES, STRAY_CHARS = 3, 120
"""How much output that is not a message is kept, to explain why a server does not answer."""


class StdioSession(McpSession, asyncio.Protocol):
    """Requests and answers over a process's stdin and stdout."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._abandoned: set[int] = set()
        """Cancelled requests whose answers may still come."""
        self.stray: list[str] = []
        """The first lines that were not messages."""
        self._stray_limit = TokenBucket()
        self._rest: list[bytes] = []
        self._held = 0
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None

    async def connect(self, stdin: Any, stdout: Any) -> None:
        """Connect to the process's pipes, given as open files."""
        self._writer, _ = await self._loop.connect_write_pipe(asyncio.Protocol, stdin)
        self._reader, _ = await self._loop.connect_read_pipe(lambda: self, stdout)

    async def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        number, body = self._numbered(method, params)
        future = self._waiting[number] = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._time_out, number, method, seconds)
        try:
            self._send(body)
            return result_of(self.name, await future)
        except (asyncio.CancelledError, NoAnswer) as error:
            self._abandoned.add(number)
            if isinstance(error, asyncio.CancelledError):
                self._try_to_send(cancellation(number))
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
            raise self.fail(f"MCP server {self.name!r} was ended: it does not read its input. Correct the server.")
        self._writer.write(as_json(message) + b"\n")

    def _time_out(self, number: int, method: str, seconds: float) -> None:
        future = self._waiting.get(number)
        if future is not None and not future.done():
            self._try_to_send(cancellation(number))
            message = f"MCP server {self.name!r} did not answer {method} within {seconds:g} s."
            future.set_exception(NoAnswer(message))

    def _try_to_send(self, message: Mapping[str, Any]) -> None:
        """Send what is of no use to a server that is lost."""
        with suppress(McpError):
            self._send(message)

    # What the server sends

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
            if not self._received(line) and not self._stray_limit.spend(len(line) + LINE_BYTES):
                self.fail(
                    f"MCP server {self.name!r} was ended: it floods its output with lines that answer no request. "
                    "Have it log to stderr, and less."
                )

    def _keep(self, data: bytes) -> None:
        self._rest.append(data)
        self._held += len(data)
        if self._held > limits.MCP_MESSAGE_BYTES:
            most = f"{limits.MCP_MESSAGE_BYTES:,} bytes"
            self.fail(f"MCP server {self.name!r} sent a message of more than {most}. Have it send less at once.")

    def _received(self, line: bytes) -> bool:
        """Process a line; returns whether it answers a request."""
        try:
            messages = messages_in(line)
        except Unreadable as error:
            reason = f"MCP server {self.name!r} sent an answer that cannot be read. Correct the server."
            return error.number is not None and self._settle(error.number, {"error": {"message": reason}})
        if not messages and len(self.stray) < STRAY_LINES and line.strip():
            self.stray.append(line[:STRAY_CHARS].decode("utf-8", "replace"))
        return sum(map(self._take, messages)) > 0

    def _take(self, message: dict[str, Any]) -> bool:
        if "method" in message:
            if "id" in message:
                self._try_to_send(reply_to(message))
            return False
        number = number_of(message)
        if number is None and message.get("error") and len(self._waiting) == 1:  # a request it could not read
            number = next(iter(self._waiting))
        return number is not None and self._settle(number, message)

    def _settle(self, number: int, message: dict[str, Any]) -> bool:
        """Returns whether a request waits, or waited, for this answer."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(message)
            return True
        late = number in self._abandoned
        self._abandoned.discard(number)
        return late

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost is not None:  # closed by `fail`
            return
        # Most often its process ended, and the exit status, which says more, arrives in a moment.
        self.ending = True
        self._loop.call_later(
            EXIT_SECONDS, self.fail, f"MCP server {self.name!r} closed its output. Have it keep stdout open."
        )

    def fail(self, reason: str) -> McpError:
        error = super().fail(reason)
        for future in self._waiting.values():
            settle(future, None, McpError(str(error)))
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()
        if self._reader is not None:
            self._reader.close()
        return error

    async def close(self) -> None:
        self.fail(f"MCP server {self.name!r} was stopped.")
