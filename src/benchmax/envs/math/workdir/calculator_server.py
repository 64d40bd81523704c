"""A calculator as an MCP server: one tool, without state or files."""

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from benchmax import errors
from benchmax.envs.calculator import expressions

server = MCPServer("calculator")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def calculate(expression: str) -> str:
    """Computes an arithmetic expression."""
    try:
        return expressions.compute(expression)
    except errors.ToolError as error:  # the SDK shows the model the text of its own ToolError alone
        raise ToolError(str(error)) from None


if __name__ == "__main__":
    server.run("stdio")
