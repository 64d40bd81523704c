"""The tools of one environment: checked calls in, bounded text out.

What the model writes is hostile: names, JSON and arguments are checked here and in `tool_schema`, and whatever is wrong
goes back to the model as a sentence it can act on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmax import limits
from benchmax.envs.example_id import json_fault
from benchmax.envs.types import ToolCall, ToolDefinition, ToolResult
from benchmax.errors import EnvDefinitionError
from benchmax.rollouts.tool_schema import Check, argument_check


class BadToolCall(Exception):
    """The model's call cannot be run; the message is for the model."""


class Toolbox:
    """An environment's tools by name."""

    def __init__(self, tools: Iterable[ToolDefinition]) -> None:
        self.tools: list[ToolDefinition] = [_as_definition(tool) for tool in tools or ()]
        self._checks: dict[str, Check] = {}
        for tool in self.tools:
            if tool.name in self._checks:
                raise EnvDefinitionError(f"Two tools are named {tool.name!r}. Give each tool a name of its own.")
            self._checks[tool.name] = argument_check(tool)

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """The call's arguments, parsed and checked against the tool's schema; raises BadToolCall."""
        check = self._checks.get(call.name)
        if check is None:
            known = ", ".join(self._checks) or "none"
            raise BadToolCall(f"There is no tool named {call.name!r}. The tools are: {known}.")
        arguments = _parse(call.arguments)
        if wrong := check(arguments):
            raise BadToolCall(f"Wrong arguments for {call.name}: {wrong}")
        return arguments


def _as_definition(tool: Any) -> ToolDefinition:
    if isinstance(tool, ToolDefinition):
        return tool
    if isinstance(tool, Mapping):  # OpenAI's form is accepted too
        body = tool.get("function", tool)
        if isinstance(body, Mapping) and isinstance(body.get("name"), str):
            schema = body.get("parameters", body.get("input_schema"))
            return ToolDefinition(body["name"], str(body.get("description") or ""), schema)
    raise EnvDefinitionError(
        f"list_tools returned {type(tool).__name__} among its tools. "
        "Return a list of ToolDefinition(name, description, input_schema)."
    )


def _parse(text: str) -> dict[str, Any]:
    if len(text) > limits.TOOL_ARGUMENT_BYTES:
        raise BadToolCall(f"The arguments are longer than {limits.TOOL_ARGUMENT_BYTES} bytes.")
    try:
        arguments = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise BadToolCall(f"The arguments are not valid JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise BadToolCall("The arguments must be a JSON object.")
    return arguments


def tool_calls_of(message: Mapping[str, Any]) -> Sequence[ToolCall]:
    """The calls in an assistant turn; what is not a call is dropped."""
    raw = message.get("tool_calls")
    return [ToolCall.from_dict(call) for call in raw if type(call) is dict or isinstance(call, Mapping)] if raw else ()


def as_result(value: Any) -> ToolResult:
    """Whatever a tool returned, as a ToolResult; what cannot be text is an error the model can read."""
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, ToolResult):
        return _checked(value)
    if value is None:
        return ToolResult("")
    if isinstance(value, bytes):
        return ToolResult(value.decode("utf-8", errors="replace"))
    if isinstance(value, dict | list | tuple | int | float | bool):
        try:
            return ToolResult(json.dumps(value, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            pass
    return _no_text(value)


def _checked(result: ToolResult) -> ToolResult:
    """The result, unless a record cannot hold what is in it."""
    text: Any = result.text
    if not isinstance(text, str):
        return _no_text(text)
    if result.parts and (fault := json_fault(list(result.parts))):
        return ToolResult(f"Error: the tool returned parts that are not JSON ({fault}).", is_error=True)
    return result


def _no_text(value: Any) -> ToolResult:
    return ToolResult(f"Error: the tool returned {type(value).__name__}, which is not text.", is_error=True)


def clean_text(text: str, most: int) -> str:
    """Text that JSON, terminals and tokenizers can take, cut with a note where it is too long."""
    if len(text) > most:
        text = f"{text[:most]}\n… [cut: {len(text) - most:,} of {len(text):,} characters left out]"
    if text.isascii():
        return text
    return text.encode("utf-8", errors="replace").decode("utf-8")  # lone surrogates
