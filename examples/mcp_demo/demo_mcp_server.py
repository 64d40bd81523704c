"""A small MCP server with a memory and files: what one rollout does, no other may see."""

import ast
import operator
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("demo")
variables: dict[str, float] = {}
ballast: list[bytearray] = []
READS = ToolAnnotations(read_only_hint=True)

OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


@server.tool(annotations=READS)
def hello_world(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.tool()
def define_variable(name: str, value: float) -> str:
    """Remember a number under a name."""
    variables[name] = value
    return f"{name} = {value}"


@server.tool(annotations=READS)
def get_variable(name: str) -> float:
    """The number remembered under a name."""
    if name not in variables:
        raise ToolError(f"There is no variable {name!r}.")
    return variables[name]


@server.tool(annotations=READS)
def evaluate(expression: str) -> float:
    """Compute an expression of numbers, variables, + - * / and brackets."""
    try:
        return compute(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, KeyError, RecursionError) as error:
        raise ToolError(f"{expression!r} cannot be computed: {error}") from None


def compute(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            if name not in variables:
                raise ToolError(f"There is no variable {name!r}.")
            return variables[name]
        case ast.BinOp(left=left, op=kind, right=right):
            return OPERATIONS[type(kind)](compute(left), compute(right))
        case ast.UnaryOp(op=kind, operand=operand):
            return OPERATIONS[type(kind)](compute(operand))
    raise ToolError("Only numbers, variables, + - * / and brackets are known.")


@server.tool()
def append_log(filename: str, message: str) -> str:
    """Write a line at the end of a file in the working directory."""
    try:
        with Path(filename).open("a", encoding="utf-8") as file:
            file.write(message + "\n")
    except OSError as error:  # only a ToolError's text is shown to the model
        raise ToolError(f"{filename!r} cannot be written: {error.strerror}") from None
    return "written"


@server.tool(annotations=READS)
def read_log(filename: str) -> str:
    """The text of a file in the working directory."""
    try:
        return Path(filename).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ToolError(f"There is no text file {filename!r}.") from None


@server.tool()
def allocate_memory(megabytes: int) -> str:
    """Use memory, to see what a hungry server does."""
    ballast.append(bytearray(megabytes * 2**20))
    return f"{sum(map(len, ballast)) // 2**20} MB in use"


if __name__ == "__main__":
    server.run("stdio")
