"""One session with a server of the SDK, in memory, in the process from which servers are forked.

What an SDK builds when it is first used (validators, schemas, its first session) is then there in every fork: a server
starts sooner and has less memory of its own. Nothing of the session stays: it is in memory, without threads or files,
and logging is put back as it was.

Runs under any Python from 3.9 with the standard library alone. An SDK of another shape is left as it is.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

SECONDS = 5.0


def warm_up() -> None:
    """For the SDKs that are imported; never raises."""
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    try:
        logging.disable(logging.CRITICAL)
        for module, session in (("mcp.server.mcpserver", _second), ("mcp.server.fastmcp", _first)):
            if module in sys.modules:
                asyncio.run(asyncio.wait_for(session(), SECONDS))
    except BaseException:  # also what refuses an import
        pass
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.disable(disabled)


async def _second() -> None:
    """Version 2 of the SDK, by both of its handshakes."""
    from mcp import Client
    from mcp.server.mcpserver import MCPServer

    for mode in ("legacy", "auto"):
        server: Any = MCPServer("warm-up")
        server.tool()(repeat)
        async with Client(server, mode=mode) as client:
            await _talk(client)


async def _first() -> None:
    """Version 1."""
    from mcp.server import fastmcp
    from mcp.shared import memory

    connected: Any = vars(memory)["create_connected_server_and_client_session"]
    server: Any = vars(fastmcp)["FastMCP"]("warm-up")
    server.tool()(repeat)
    async with connected(server._mcp_server) as client:
        await _talk(client)


async def _talk(client: Any) -> None:
    await client.list_tools()
    await client.call_tool("repeat", {"text": "a", "times": 2})
    await client.call_tool("repeat", {"text": 1})


async def repeat(text: str, times: int) -> str:
    return text * times
