"""What a tool is, and how it is called: one table for the in-process environment and the MCP server.

A tool is an async function of an org and named arguments, described by a decorator. `call_tool` checks the arguments
against the schema, runs the function and writes its result as text. What the caller did wrong is a text that
begins with `Error:`, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from benchmax.envs.crm.org.base import Org, QueryError
from benchmax.envs.generated_tasks import arguments_schema
from benchmax.envs.types import ToolDefinition

Schema: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[..., Awaitable[Any]]
AnyFunction = TypeVar("AnyFunction", bound=Function)

TOOLS: dict[str, Tool] = {}
"""Every tool by its name."""


class BadArgument(Exception):
    """An argument cannot be used; the message is for the caller."""


@dataclass(frozen=True)
class Tool:
    """A tool: how it is described, and what it does."""

    definition: ToolDefinition
    function: Function

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator

        return Draft202012Validator({**(self.definition.input_schema or {}), "additionalProperties": False})

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """The first thing that is wrong with the arguments."""
        for error in self._validator.iter_errors(dict(arguments)):
            where = ".".join(map(str, error.absolute_path))
            return f"{where}: {error.message[:300]}" if where else str(error.message[:300])
        return None


def tool(
    description: str, *, optional: Mapping[str, Schema] | None = None, **required: Schema
) -> Callable[[AnyFunction], AnyFunction]:
    """Add a function to the tools: what it does, and the schemas of its arguments."""

    def add(function: AnyFunction) -> AnyFunction:
        name = function.__name__
        TOOLS[name] = Tool(ToolDefinition(name, description, arguments_schema(optional, **required)), function)
        return function

    return add


async def call_tool(org: Org, name: str, arguments: Mapping[str, Any], listed: Collection[str] | None = None) -> str:
    """The result of a tool as text: a text as it is, everything else as JSON. Only listed tools are run."""
    names = TOOLS if listed is None else listed
    if name not in names:
        return f"Error: There is no tool named {name[:60]!r}. The tools are: {', '.join(names)}."
    found = TOOLS[name]
    if problem := found.problem(arguments):
        return f"Error: {problem}"
    try:
        value = await found.function(org, **arguments)
    except (BadArgument, QueryError) as error:
        return f"Error: {error}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
