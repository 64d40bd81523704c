"""`mcp_client`: calls a rollout's servers from a reward function.

async def variable_is_set(completion, ground_truth, mcp_client, workspace, **kwargs):
    result = await mcp_client.call_tool("get_variable", {"name": "x"})
    return float(result.text == str(ground_truth))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmax.envs.mcp.client.content import content_of
from benchmax.errors import ToolError

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Sends a request to the rollout's servers: its kind, and its arguments."""


@dataclass(frozen=True, slots=True)
class TextContent:
    """A piece of text in a result."""

    text: str
    type: str = "text"


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a tool."""

    content: tuple[Any, ...]
    """`TextContent` for text, and dicts as the server sent them for everything else."""
    structured_content: dict[str, Any] | None = None
    is_error: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """All text of the result."""
        return "\n".join(each.text for each in self.content if isinstance(each, TextContent))

    @property
    def data(self) -> Any:
        """The structured value, without the `{"result": …}` around it if there is nothing else."""
        given = self.structured_content
        return given["result"] if given is not None and set(given) == {"result"} else given

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> CallResult:
        content = tuple(
            TextContent(str(part.get("text") or "")) if part.get("type") == "text" else part for part in content_of(raw)
        )
        structured = raw.get("structuredContent")
        return cls(content, structured if isinstance(structured, dict) else None, bool(raw.get("isError")), raw)


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool as the servers list it."""

    name: str
    description: str
    input_schema: dict[str, Any] | None


class McpClient:
    """The servers of one rollout."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, raise_on_error: bool = True
    ) -> CallResult:
        """Call a tool; ToolError when it fails, unless `raise_on_error` is False."""
        result = CallResult.of(await self._ask("call", {"name": name, "arguments": dict(arguments or {})}))
        if result.is_error and raise_on_error:
            raise ToolError(result.text or f"The tool {name!r} failed.")
        return result

    async def list_tools(self) -> list[ToolInfo]:
        tools = await self._ask("tools", {})
        return [ToolInfo(each["name"], each["description"], each["input_schema"]) for each in tools]

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource, as the server sent them."""
        result = await self._ask("request", {"method": "resources/read", "params": {"uri": uri}})
        contents = result.get("contents") if isinstance(result, Mapping) else None
        return list(contents) if isinstance(contents, list) else []
