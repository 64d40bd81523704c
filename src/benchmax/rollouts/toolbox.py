"""The tools of one environment: checked calls in, bounded text out.

What the model writes is hostile: names, JSON and arguments are checked here, and whatever is wrong goes back to
the model as a sentence it can act on. Schemas are never followed to other documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from benchmax import limits
from benchmax.envs.example_id import json_fault
from benchmax.envs.types import ToolCall, ToolDefinition, ToolResult
from benchmax.errors import EnvDefinitionError

Check = Callable[[dict[str, Any]], str | None]
"""Gives what is wrong with the arguments, or None."""


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
            self._checks[tool.name] = _compile(tool)

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """The call's arguments, parsed and checked against the tool's schema."""
        check = self._checks.get(call.name)
        if check is None:
            known = ", ".join(self._checks) or "none"
            raise BadToolCall(f"There is no tool named {call.name!r}. The tools are: {known}.")
        arguments = _parse(call.arguments)
        wrong = check(arguments)
        if wrong:
            raise BadToolCall(f"Wrong arguments for {call.name}: {wrong}")
        return arguments


def _as_definition(tool: Any) -> ToolDefinition:
    if isinstance(tool, ToolDefinition):
        return tool
    if isinstance(tool, Mapping):  # OpenAI's form is welcome too
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


def _compile(tool: ToolDefinition) -> Check:
    schema = tool.input_schema
    if not schema:
        return lambda arguments: None
    simple = _simple_check(schema)
    full = _full_check(tool.name, schema)
    if simple is None:
        return full
    return lambda arguments: None if simple(arguments) else full(arguments)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_PLAIN = {"type", "description", "title", "default", "examples"}


def _simple_check(schema: Mapping[str, Any]) -> Callable[[dict[str, Any]], bool] | None:
    """A fast test for the schemas most tools have; False only means: look closer."""
    properties = schema.get("properties", {})
    if not set(schema) <= {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}:
        return None
    types: dict[str, tuple[type, ...]] = {}
    for name, sub in properties.items():
        kind = sub.get("type") if isinstance(sub, Mapping) and set(sub) <= _PLAIN else None
        if kind not in _TYPES:
            return None
        types[name] = _TYPES[kind]
    required = frozenset(schema.get("required", ()))

    def check(arguments: dict[str, Any]) -> bool:
        if not required <= arguments.keys():
            return False
        for name, value in arguments.items():
            expected = types.get(name)
            if expected is None or not isinstance(value, expected) or (type(value) is bool and bool not in expected):
                return False
        return True

    return check


def _full_check(name: str, schema: Mapping[str, Any]) -> Check:
    import jsonschema
    from referencing import Registry

    closed = dict(schema)
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    cls = jsonschema.validators.validator_for(closed, default=jsonschema.Draft202012Validator)
    try:
        cls.check_schema(closed)
    except (jsonschema.SchemaError, RecursionError) as error:
        reason = getattr(error, "message", str(error))
        raise EnvDefinitionError(
            f"The input_schema of tool {name!r} is not a JSON schema: {reason}. Correct it in list_tools."
        ) from None
    cls = jsonschema.validators.extend(cls, {"pattern": _bounded_pattern})  # type: ignore[no-untyped-call]
    validator = cls(closed, registry=Registry())  # an empty registry never fetches a $ref
    longest_name = min(map(_matchable, _name_patterns(closed)), default=None)

    def check(arguments: dict[str, Any]) -> str | None:
        if longest_name is not None and any(len(key) > longest_name for key in _names(arguments)):
            return f"a name in them is longer than {longest_name} characters"
        try:
            errors = sorted(validator.iter_errors(arguments), key=lambda error: list(map(str, error.absolute_path)))
        except Exception as error:
            return f"they could not be checked ({type(error).__name__})"
        return "; ".join(_say(error) for error in errors[:5]) or None

    return check


# A regular expression cannot be stopped, and the model writes the text it runs on. So the text is bounded by what the
# pattern may cost: a longer one is not matched, and the tool sees it as it is.

PATTERN_STEPS = 10_000_000
PATTERN_CHARS = 2_000
NESTED_PATTERN_CHARS = 20
MOST_CHOICES = 12


def _bounded_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and len(instance) <= _matchable(pattern) and not re.search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


@lru_cache(maxsize=1024)
def _matchable(pattern: str) -> int:
    """The longest text this pattern is tried on, so that the trial ends within a fraction of a second."""
    try:
        parsed = list(_parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return PATTERN_CHARS
    shape = _Shape()
    shape.read(parsed, inside=False)
    if shape.nested > 1:
        return NESTED_PATTERN_CHARS // (shape.nested + 1)
    if shape.nested or shape.choices > MOST_CHOICES:
        return NESTED_PATTERN_CHARS
    anchored = bool(parsed) and parsed[0][0] is _constants.AT
    power = shape.repeats if anchored else shape.repeats + 1
    return min(PATTERN_CHARS, int(PATTERN_STEPS ** (1 / max(1, power))))


class _Shape:
    """What makes a pattern dear: long repeats multiply, choices double, and a choice in a repeat has no end."""

    def __init__(self) -> None:
        self.repeats = self.choices = self.nested = 0

    def read(self, node: Any, inside: bool) -> None:
        if isinstance(node, tuple) and len(node) == 2 and isinstance(node[0], _constants._NamedIntConstant):
            kind, node = node
            repeat = kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
            if kind is _constants.BRANCH or (repeat and node[0] != node[1]):
                self.nested += inside * (1 if repeat else len(node[1]) - 1)
                self.repeats += repeat and node[1] > 8
                self.choices += not repeat or node[1] <= 8
            inside |= repeat and node[1] > 1
        if isinstance(node, tuple | list | _parser.SubPattern):
            for part in node:
                self.read(part, inside)


def _name_patterns(schema: Any) -> Iterator[str]:
    """Every pattern for property names in a schema."""
    if isinstance(schema, Mapping):
        found = schema.get("patternProperties")
        yield from (key for key in found if isinstance(key, str)) if isinstance(found, Mapping) else ()
    for part in schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ():
        yield from _name_patterns(part)


def _names(value: Any) -> Iterator[str]:
    """Every property name in the arguments."""
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(part)


def _say(error: Any) -> str:
    where = ".".join(map(str, error.absolute_path))
    message = str(error.message)[:300]
    return f"{where}: {message}" if where else message


def result_text(value: Any) -> ToolResult:
    """Whatever a tool returned, as text; a type that is no text is an error the model can read."""
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
    return ToolResult(f"Error: the tool returned {type(value).__name__}, which is not text.", is_error=True)


def _checked(result: ToolResult) -> ToolResult:
    """The result, unless a record cannot hold what is in it."""
    text: Any = result.text
    if not isinstance(text, str):
        return ToolResult(f"Error: the tool returned {type(text).__name__}, which is not text.", is_error=True)
    if result.parts and (fault := json_fault(list(result.parts))):
        return ToolResult(f"Error: the tool returned parts that are not JSON ({fault}).", is_error=True)
    return result


def clean_text(text: str, most: int) -> str:
    """Text that JSON, terminals and tokenizers can take, cut with a mark where it is too long."""
    if len(text) > most:
        text = f"{text[:most]}\n… [cut: {len(text) - most:,} of {len(text):,} characters left out]"
    if text.isascii():
        return text
    return text.encode("utf-8", errors="replace").decode("utf-8")  # lone surrogates


def tool_calls_of(message: Mapping[str, Any]) -> Sequence[ToolCall]:
    """The calls in an assistant turn; what is not a call is dropped."""
    raw = message.get("tool_calls")
    return [ToolCall.from_dict(call) for call in raw if isinstance(call, Mapping)] if raw else ()
