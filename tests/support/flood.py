"""A flood from one machine, in a process of its own: `python flood.py` with its orders, in JSON, on stdin.

Half-open connections, live feeds and bodies, each kind kept at its number for as long as it is told to; what is closed
or refused is tried again. Prints what it got.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections import Counter

AGAIN_SECONDS = 2.0
PIECE = b"[" + b"1," * 32_000


class Flood:
    def __init__(self, orders):
        self.port, self.until = orders["port"], time.monotonic() + orders["seconds"]
        self.orders, self.seen, self.open, self.most = orders, Counter(), Counter(), Counter()

    async def go(self):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.orders["half_open"]):
                tasks.create_task(self._keep("half-open", self._half_open))
            for number in range(self.orders["streams"]):
                who = self.orders["readers"][number % len(self.orders["readers"])]
                tasks.create_task(self._keep("stream", self._stream, who))
            for number in range(self.orders["bodies"]):
                target = self.orders["targets"][number % len(self.orders["targets"])]
                tasks.create_task(self._keep("body", self._body, target))
            tasks.create_task(self._watch())

    async def _watch(self):
        while time.monotonic() < self.until:
            await asyncio.sleep(0.2)
            for kind, count in self.open.items():
                self.most[kind] = max(self.most[kind], count)

    async def _keep(self, kind, attack, *given):
        while time.monotonic() < self.until:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    async with asyncio.timeout_at(asyncio.get_running_loop().time() + self.until - time.monotonic()):
                        await attack(reader, writer, *given)
                except TimeoutError:
                    pass
                finally:
                    writer.transport.abort()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _half_open(self, reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127")
        await self._held("half-open", reader)

    async def _held(self, kind, reader):
        self.open[kind] += 1
        try:
            while piece := await reader.read(65_536):
                self.seen[f"{kind} bytes"] += len(piece)
        finally:
            self.open[kind] -= 1
        self.seen[f"{kind} closed"] += 1

    async def _stream(self, reader, writer, who):
        writer.write(self._head("GET", who["path"], who["key"]) + b"\r\n")
        status = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.seen[f"stream {status}"] += 1
        if status == "200":
            await self._held("stream", reader)

    async def _body(self, reader, writer, target):
        """Chunks without a length, up to `bytes`, whatever the server says meanwhile."""
        head = self._head("POST", target["path"], target.get("key"))
        declared = target.get("declared")
        length = f"Content-Length: {declared}" if declared else "Transfer-Encoding: chunked"
        writer.write(head + b"Content-Type: application/json\r\n" + length.encode() + b"\r\n\r\n")
        self.open["body"] += 1
        answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
        try:
            sent = 0
            while sent < target["bytes"] and not answer.done():
                writer.write(PIECE if declared else b"%x\r\n" % len(PIECE) + PIECE + b"\r\n")
                await writer.drain()
                sent += len(PIECE)
            writer.write(b"" if declared else b"0\r\n\r\n")
            self.seen[f"body {(await answer).split()[1].decode()}"] += 1
        finally:
            self.open["body"] -= 1
            answer.cancel()
            with contextlib.suppress(BaseException):
                await answer

    def _head(self, method, path, key):
        signed = f"Authorization: Bearer {key}\r\n" if key else ""
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{signed}".encode()


def main():
    os.nice(5)  # a real one is on other machines, and takes nothing of the server's
    flood = Flood(json.load(sys.stdin))
    asyncio.run(flood.go())
    print(json.dumps({"seen": flood.seen, "most": flood.most}))


if __name__ == "__main__":
    main()
