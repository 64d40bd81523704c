"""The client of one MCP server: requests, answers, and what a server prints.

mcp_session     the protocol and its messages, whatever the transport; start reading here
stdio_session   over the pipes of a process
http_session    over streamable HTTP
output_tail     the last lines that a process printed
tool_schemas    the schemas of tools, without what is none
content         a tool's result as text and content parts for a model
reward_client   `mcp_client`, which reward functions get

It starts no processes and knows nothing of rollouts.
"""

from __future__ import annotations

from benchmax.envs.mcp.client.reward_client import CallResult, McpClient, TextContent, ToolInfo

__all__ = ["CallResult", "McpClient", "TextContent", "ToolInfo"]
