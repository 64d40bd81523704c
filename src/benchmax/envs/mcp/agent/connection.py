"""One client's connection to the agent, and the HTTP application that accepts it.

Clients connect to `/agent` as a WebSocket, with `Authorization: Bearer <secret>`, and send frames (remote/wire.py), any
number at once: {"id": 1, "op": "call", …} is answered by {"id": 1, "ok": …} or {"id": 1, "error": …}. `open` returns a
rollout's token, which every other operation names. The rollouts that were opened on a connection end with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from benchmax import limits
from benchmax.envs.mcp.agent.auth import bearer_token, check_host, error_response, same_secret
from benchmax.envs.mcp.agent.http_routes import HttpRoutes, errors_as_json
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.agent.workspace_files import Upload
from benchmax.envs.mcp.agent_client import PROTOCOL
from benchmax.envs.mcp.frame_socket import FrameSocket
from benchmax.envs.remote.wire import MESSAGE_BYTES, describe, pack
from benchmax.errors import McpError, UsageError


class Connection(FrameSocket):
    """One client: its pending requests, and the rollouts it opened."""

    def __init__(self, node: Node, socket: web.WebSocketResponse) -> None:
        super().__init__()
        self.node = node
        self._socket = socket
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._tokens: set[str] = set()
        self._uploads: dict[int, Upload] = {}
        self._ended = False

    async def serve(self) -> None:
        sender = asyncio.ensure_future(self._send_posted(self._socket))
        self.send({"hello": {"protocol": PROTOCOL, **self.node.about()}})
        try:
            await self._receive_all(self._socket)
        except ValueError:  # not frames, so not a client
            pass
        finally:
            sender.cancel()
            await self._end()

    def send(self, message: dict[str, Any]) -> None:
        self._post(pack(message))

    def _received(self, message: dict[str, Any]) -> None:
        if "cancel" in message:
            if (task := self._tasks.get(message["cancel"])) is not None:
                task.cancel()
            return
        number = int(message["id"])
        task = asyncio.ensure_future(self._answer(number, message))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        try:
            operation = _OPERATIONS.get(str(message.get("op")))
            if operation is None:
                raise UsageError(f"There is no operation {message.get('op')!r}. Use an agent of the same version.")
            self.send({"id": number, "ok": await operation(self, message)})
        except asyncio.CancelledError:
            self.send({"id": number, "error": describe(McpError("The request was cancelled."))})
            raise
        except Exception as error:
            self.send({"id": number, "error": describe(error)})

    async def open(self, message: dict[str, Any]) -> dict[str, Any]:
        lease = await self.node.open(str(message["rollout"]), float(message["seconds"]), self.send)
        self._tokens.add(lease.token)
        if self._ended:  # the lease came after the connection's end
            await self.node.leases.release(lease.token)
        return {"token": lease.token, "workspace": str(lease.servers.dirs.workspace)}

    async def close(self, message: dict[str, Any]) -> None:
        self._tokens.discard(message["token"])
        await self.node.leases.release(message["token"])

    async def put(self, message: dict[str, Any]) -> None:
        """Write a chunk of a file. `transfer` identifies the file, which appears with its last chunk."""
        transfer = int(message["transfer"])
        file = self._uploads.get(transfer)
        if file is None:
            file = self._uploads[transfer] = self.node.upload(message["token"], message["path"])
        done = True
        try:
            await asyncio.to_thread(file.write, message["data"])
            if message["last"]:
                file.finish()
            done = bool(message["last"])
        finally:
            if done:
                self._uploads.pop(transfer).close()

    async def get(self, message: dict[str, Any]) -> dict[str, Any]:
        data, size = await asyncio.to_thread(self.node.read, message["token"], message["path"], int(message["offset"]))
        return {"data": data, "size": size}

    async def state(self, message: dict[str, Any]) -> dict[str, Any]:
        leases = self.node.leases
        return {**self.node.state(), "pids": leases.pids(), "rollouts": leases.pids_of_rollouts()}

    async def _end(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=2.0)
        for file in self._uploads.values():
            file.close()
        self._ended = True
        for token in list(self._tokens):
            await self.node.leases.release(token)


_OPERATIONS: dict[str, Callable[[Connection, dict[str, Any]], Awaitable[Any]]] = {
    "open": Connection.open,
    "close": Connection.close,
    "put": Connection.put,
    "get": Connection.get,
    "state": Connection.state,
    "reset": lambda self, given: self.node.leases.reset(given["token"]),
    "call": lambda self, given: self.node.leases.call(
        given["token"], given["name"], given["arguments"], float(given["seconds"])
    ),
    "request": lambda self, given: self.node.request(
        given["token"], given["method"], given["params"], float(given["seconds"])
    ),
    "tools": lambda self, given: self.node.tools(float(given["seconds"])),
    "check": lambda self, given: self.node.leases.lease(given["token"]).servers.check(),
    "reward": lambda self, given: self.node.reward(given["token"], given["task"], float(given["seconds"]), self.send),
    "warm": lambda self, given: self.node.leases.warm(int(given["number"]), float(given["seconds"])),
}


def make_app(node: Node, secret: str, names: Sequence[str]) -> web.Application:
    """The agent as an HTTP application."""

    async def connect(request: web.Request) -> web.StreamResponse:
        if not same_secret(bearer_token(request), secret):
            return error_response(401, "unauthorized", "This is not the agent's secret.")
        ws = web.WebSocketResponse(max_msg_size=2 * MESSAGE_BYTES, heartbeat=20.0, compress=False)
        await ws.prepare(request)
        await Connection(node, ws).serve()
        return ws

    app = web.Application(middlewares=[check_host(names), errors_as_json], client_max_size=2 * limits.MCP_FILE_BYTES)
    app.add_routes([web.get("/agent", connect), *HttpRoutes(node).routes()])
    return app
