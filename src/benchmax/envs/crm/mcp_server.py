"""The 25 tools as an MCP server on standard input and output: `python -m benchmax.envs.crm.mcp_server [salesforce]`.

Which company a rollout is about stands in company.json in its directory; the first company when there is none. The file
is read at each call, because it is written after the server has started.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import mcp.server.stdio
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from benchmax.envs.crm.base import COMPANY_FILE
from benchmax.envs.crm.org.base import Org
from benchmax.envs.crm.org.embedded import org_of
from benchmax.envs.crm.org.salesforce import SalesforceOrg
from benchmax.envs.crm.tools import TOOLS, call_tool


async def list_tools(context: Any, params: Any) -> ListToolsResult:
    definitions = (tool.definition for tool in TOOLS.values())
    return ListToolsResult(
        tools=[
            Tool(name=each.name, description=each.description, input_schema=each.input_schema or {"type": "object"})
            for each in definitions
        ]
    )


async def call(context: Any, params: CallToolRequestParams) -> CallToolResult:
    text = await call_tool(_org(), params.name, params.arguments or {})
    return CallToolResult(content=[TextContent(type="text", text=text)])


def _org() -> Org:
    if sys.argv[1:] == ["salesforce"]:
        return _live()
    told = Path(COMPANY_FILE)
    return _embedded(json.loads(told.read_text()) if told.exists() else 0)


_embedded = lru_cache(maxsize=1)(org_of)
_live = lru_cache(maxsize=1)(SalesforceOrg)


async def serve() -> None:
    server = Server("crm", on_list_tools=list_tools, on_call_tool=call)
    async with mcp.server.stdio.stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(serve())
