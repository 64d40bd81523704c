"""An environment's own tools as an MCP server on standard input and output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from benchmax.envs.types import ToolDefinition
from benchmax.errors import BenchmaxError


async def serve_tools(
    name: str, tools: Iterable[ToolDefinition], call: Callable[[str, dict[str, Any]], Awaitable[str]]
) -> None:
    """Serve until the client is gone; what `call` raises for a tool and its arguments, the model reads."""
    listed = [
        Tool(name=each.name, description=each.description, input_schema=each.input_schema or {"type": "object"})
        for each in tools
    ]

    async def on_list(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def on_call(context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            text, failed = await call(params.name, params.arguments or {}), False
        except BenchmaxError as error:
            text, failed = str(error), True
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    server = Server(name, on_list_tools=on_list, on_call_tool=on_call)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())
