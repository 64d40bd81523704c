"""Frames (remote/wire.py) over a WebSocket, for both ends of a connection to an agent."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import ClientWebSocketResponse, WSMsgType, web

from benchmax import limits
from benchmax.envs.remote.wire import Frames, next_frames

CHUNK_BYTES = limits.MIB
"""How much of a file goes into one frame."""
WebSocket = ClientWebSocketResponse | web.WebSocketResponse


class FrameSocket:
    """Frames that are posted while a message is being sent go together in the next one."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._outbox: list[bytes] = []
        self._posted = asyncio.Event()

    def _received(self, message: dict[str, Any]) -> None:
        """Called with each message."""
        raise NotImplementedError

    def _post(self, frame: bytes) -> None:
        self._outbox.append(frame)
        self._posted.set()

    async def _send_posted(self, socket: WebSocket) -> None:
        while True:
            await self._posted.wait()
            self._posted.clear()
            while self._outbox:
                await socket.send_bytes(next_frames(self._outbox))

    async def _receive_all(self, socket: WebSocket) -> None:
        """Until the other end closes the connection; ValueError when it sends something other than frames."""
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                return
            for each in self._frames.feed(message.data):
                self._received(each)
