"""Checks a tool call's arguments against the tool's JSON schema.

The schemas most tools have are checked by a few comparisons; `jsonschema` decides whatever those do not accept, and
says what is wrong. References to other documents are never followed, and a pattern never runs for long (`regex_cost`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmax.envs.types import ToolDefinition
from benchmax.errors import EnvDefinitionError
from benchmax.rollouts.regex_cost import longest_matchable

logger = logging.getLogger(__name__)

Check = Callable[[dict[str, Any]], str | None]
"""Returns what is wrong with the arguments, or None."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_SIMPLE_KEYWORDS = {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}
_ANNOTATIONS = {"type", "description", "title", "default", "examples"}
_WITH_OTHERS = {"allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$ref", "$dynamicRef"}
"""Keywords by which other schemas may add names to those of `properties`."""


def argument_check(tool: ToolDefinition) -> Check:
    """The check of one tool's arguments; raises EnvDefinitionError when its schema is no JSON schema."""
    schema = tool.input_schema
    if not schema:
        return lambda arguments: None
    full = _full_check(tool.name, schema)  # first: it refuses what is no schema
    simple = _simple_check(schema)
    if simple is None:
        return full
    return lambda arguments: None if simple(arguments) else full(arguments)


def _simple_check(schema: Mapping[str, Any]) -> Callable[[dict[str, Any]], bool] | None:
    """A fast test for the schemas most tools have; False only means that the full check decides."""
    if not set(schema) <= _SIMPLE_KEYWORDS or not isinstance(schema.get("required", []), list):
        return None
    types: dict[str, tuple[type, ...]] = {}
    for name, sub in schema.get("properties", {}).items():
        kind = sub.get("type") if isinstance(sub, Mapping) and set(sub) <= _ANNOTATIONS else None
        kinds = [str(each) for each in (kind if isinstance(kind, list) else [kind])]
        if not all(each in _TYPES for each in kinds):
            return None
        types[name] = tuple(found for each in kinds for found in _TYPES[each])
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
    from referencing.exceptions import Unresolvable

    try:
        closed = _closed(schema)
        cls = jsonschema.validators.validator_for(closed, default=jsonschema.Draft202012Validator)
        _check_schema(name, cls, closed)
    except (jsonschema.SchemaError, RecursionError, TypeError) as error:
        reason = getattr(error, "message", str(error))
        raise EnvDefinitionError(
            f"The input_schema of tool {name!r} is not a JSON schema: {reason}. Correct it in list_tools, "
            "or leave out the tool of an MCP server with allowed_tools."
        ) from None
    cls = jsonschema.validators.extend(cls, {"pattern": _bounded_pattern})  # type: ignore[no-untyped-call]
    validator = cls(closed, registry=Registry())  # an empty registry never fetches a $ref
    limited = (longest for longest in map(longest_matchable, _name_patterns(closed)) if longest >= 0)
    longest_name = min(limited, default=None)

    def check(arguments: dict[str, Any]) -> str | None:
        if longest_name is not None and any(len(key) > longest_name for key in _names(arguments)):
            return f"a name in them is longer than {longest_name} characters"
        try:
            errors = sorted(validator.iter_errors(arguments), key=lambda error: list(map(str, error.absolute_path)))
        except Unresolvable as error:
            logger.warning("The input_schema of tool %r: %s. Its arguments are not checked.", name, error)
            return None
        except Exception as error:
            return f"they could not be checked ({type(error).__name__})"
        return "; ".join(map(_message, errors[:5])) or None

    return check


def _check_schema(name: str, cls: Any, schema: dict[str, Any]) -> None:
    """Raise SchemaError for what is no schema. A pattern that only JavaScript can read is one: it is not checked."""
    import jsonschema

    try:
        cls.check_schema(schema)
    except jsonschema.SchemaError as error:
        if error.validator != "format":
            raise
        cls.check_schema(schema, format_checker=jsonschema.FormatChecker(()))
        logger.warning("In the input_schema of tool %r, %s. It is not checked.", name, error.message)


def _closed(schema: Any) -> dict[str, Any]:
    """The schema, which takes no other names than its own unless it says so; TypeError when it cannot be one."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("$schema", ""), str):
        raise TypeError("it must be an object, and $schema a text")
    closed = dict(schema)
    if "properties" in closed and "additionalProperties" not in closed:
        # Drafts before 2019-09 do not know the first keyword: there such a schema stays open.
        closed.setdefault("unevaluatedProperties" if _WITH_OTHERS & closed.keys() else "additionalProperties", False)
    return closed


def _bounded_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    """The keyword `pattern`. A text that it cannot be tried on is not matched, and reaches the tool as it is."""
    from jsonschema import ValidationError

    if isinstance(instance, str) and len(instance) <= longest_matchable(pattern) and not re.search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _name_patterns(schema: Any) -> Iterator[str]:
    """Every pattern for property names in a schema."""
    if isinstance(schema, Mapping):
        found = schema.get("patternProperties")
        yield from (key for key in found if isinstance(key, str)) if isinstance(found, Mapping) else ()
    for part in _parts(schema):
        yield from _name_patterns(part)


def _names(value: Any) -> Iterator[str]:
    """Every property name in the arguments."""
    if isinstance(value, dict):
        yield from value
    for part in _parts(value):
        yield from _names(part)


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _message(error: Any) -> str:
    where = ".".join(map(str, error.absolute_path))
    message = str(error.message)[:300]
    return f"{where}: {message}" if where else message
