"""A rollout over plain HTTP, for programs that have its token: files, tools, rewards, reset.

    GET  /health                    "OK", without a token
    POST /upload                    multipart; a file's name is its path in the workspace
    GET  /download?file_path=…      a file of the workspace
    POST /compute_reward            {"completion": …, "ground_truth": …, …}
    POST /reset                     fresh servers and an empty workspace, under the same token
    POST /mcp                       MCP over streamable HTTP, with the tools of all servers

All but the first require `Authorization: Bearer <token of the rollout>`. They do not accept the agent's secret.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from benchmax import limits
from benchmax.envs.mcp.agent.auth import bearer_token, error_response
from benchmax.envs.mcp.agent.lease_pool import Lease
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.agent.workspace_files import FileTooLarge
from benchmax.envs.mcp.client.mcp_session import HANDSHAKE, MODERN, UNKNOWN_METHOD, RpcError
from benchmax.envs.mcp.frame_socket import CHUNK_BYTES
from benchmax.envs.mcp.workdir import MissingFile
from benchmax.errors import BenchmaxError, McpError, ToolError, UsageError

INVALID_REQUEST, INVALID_PARAMS = -32600, -32602
"""Codes of JSON-RPC."""
_UNCACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MCP_BODY_BYTES = limits.TOOL_ARGUMENT_BYTES + 64 * limits.KIB


class HttpRoutes:
    """HTTP handlers for one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self.health),
            web.post("/upload", self.upload),
            web.get("/download", self.download),
            web.post("/compute_reward", self.compute_reward),
            web.post("/reset", self.reset),
            web.post("/mcp", self.mcp),
        ]

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(text="OK")

    def _lease(self, request: web.Request) -> Lease:
        """The lease of the request's token."""
        token = bearer_token(request)
        try:
            lease = self._node.leases.lease(token)
        except McpError:
            raise Refused(401, "unauthorized", "There is no rollout with this token.") from None
        claimed = request.headers.get("X-Rollout-Id")
        if claimed is not None and claimed != lease.rollout_id:
            raise Refused(403, "forbidden", "This token belongs to another rollout.")
        return lease

    async def upload(self, request: web.Request) -> web.StreamResponse:
        lease = self._lease(request)
        if not request.content_type.startswith("multipart/"):
            return error_response(400, "invalid_request", "Send the file as multipart/form-data.")
        stored: list[str] = []
        try:
            async for part in await request.multipart():
                name = getattr(part, "filename", None)
                if name is None:
                    continue
                with closing(self._node.upload(lease.token, name)) as file:
                    while chunk := await part.read_chunk(CHUNK_BYTES):  # type: ignore[union-attr]
                        await asyncio.to_thread(file.write, chunk)
                    file.finish()
                stored.append(name)
        except ValueError as error:
            status = 413 if isinstance(error, FileTooLarge) else 400
            return error_response(status, "invalid_request", str(error))
        if not stored:
            return error_response(400, "missing_fields", "There is no file in the request.")
        return web.json_response({"stored": stored})

    async def download(self, request: web.Request) -> web.StreamResponse:
        lease = self._lease(request)
        path = request.query.get("file_path")
        if not path:
            return error_response(400, "missing_fields", "Name the file: ?file_path=…")
        try:
            data, size = await asyncio.to_thread(self._node.read, lease.token, path, 0)
        except MissingFile as error:
            return error_response(404, "not_found", str(error))
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.content_length = size
        await response.prepare(request)
        sent = 0
        while data and sent < size:
            await response.write(data[: size - sent])
            sent += len(data)
            data, _ = await asyncio.to_thread(self._node.read, lease.token, path, sent)
        await response.write_eof()
        return response

    async def compute_reward(self, request: web.Request) -> web.StreamResponse:
        lease = self._lease(request)
        task = await _json(request, limits.MCP_MESSAGE_BYTES)
        if missing := {"completion", "ground_truth"} - set(task):
            return error_response(400, "missing_fields", f"Missing: {', '.join(sorted(missing))}.")
        if task.get("rollout_id", lease.rollout_id) != lease.rollout_id:
            return error_response(403, "forbidden", "This token belongs to another rollout.")
        rewards = await self._node.reward(lease.token, task, limits.REWARD_SECONDS, lambda _: None)
        return web.json_response({name: each.get("value") for name, each in rewards.items()})

    async def reset(self, request: web.Request) -> web.StreamResponse:
        await self._node.leases.reset(self._lease(request).token)
        return web.json_response({"status": "reset"})

    async def mcp(self, request: web.Request) -> web.StreamResponse:
        lease = self._lease(request)
        message = await _json(request, MCP_BODY_BYTES)
        if "id" not in message:
            return web.Response(status=202)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            method = message.get("method")
            if not isinstance(method, str):
                raise RpcError("The request names no method. Send `method` as a string.", INVALID_REQUEST)
            reply["result"] = await self._answer(lease, method, _object(message, "params"))
        except (McpError, ToolError) as error:
            reply["error"] = {"code": getattr(error, "code", -32000) or -32000, "message": str(error)}
        return web.json_response(reply)

    async def _answer(self, lease: Lease, method: str, params: dict[str, Any]) -> dict[str, Any]:
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "benchmax", "version": "1"}}
        if method == "initialize":
            return {"protocolVersion": HANDSHAKE, **about}
        if method == "server/discover":
            return {"supportedVersions": [MODERN], **_UNCACHED, **about}
        if method == "ping":
            return {}
        if method == "tools/list":
            tools = [
                {
                    "name": each["name"], "description": each["description"],
                    "inputSchema": each["input_schema"] or {"type": "object"},
                }
                for each in await self._node.tools()
            ]  # fmt: skip
            return {"tools": tools, **_UNCACHED}
        if method == "tools/call":
            name, arguments = str(params.get("name")), _object(params, "arguments")
            result = await self._node.leases.call(lease.token, name, arguments, limits.TOOL_SECONDS)
            return {"resultType": "complete", **result}
        raise RpcError(f"{method} is not known here.", UNKNOWN_METHOD)


def _object(owner: dict[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object or missing."""
    value = owner.get(name)
    if value is not None and not isinstance(value, dict):
        raise RpcError(f"`{name}` is not an object. Send it as a JSON object, or leave it out.", INVALID_PARAMS)
    return value or {}


class Refused(Exception):
    """A request that is refused."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.response = error_response(status, error, detail)


@web.middleware
async def errors_as_json(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answer every failure with `{"error", "detail"}`."""
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except Refused as refused:
        return refused.response
    except web.HTTPException as error:
        return error_response(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    except UsageError as error:
        return error_response(400, "invalid_request", str(error))
    except HttpProcessingError as error:  # an invalid part, such as a name with NUL
        return error_response(400, "invalid_request", error.message)
    except BenchmaxError as error:
        return error_response(500, "internal_error", str(error))


async def _json(request: web.Request, most: int) -> dict[str, Any]:
    raw = bytearray()
    async for chunk in request.content.iter_any():
        raw += chunk
        if len(raw) > most:
            raise Refused(413, "too_large", f"The body may have {most:,} bytes.")
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_request", "The body is not JSON.") from None
    if not isinstance(value, dict):
        raise Refused(400, "invalid_request", "The body is not a JSON object.")
    return value
