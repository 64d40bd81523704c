"""Arguments for a tool, made from its schema alone.

Not covered: `pattern`, `format`, `not`, and conditions between properties. A tool whose schema requires these may
refuse what is made here, which is reported as such and not as a fault of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmax.envs.types import ToolDefinition

EDGES_PER_TOOL = 12
LONG_TEXT = 10_000
MOST_ITEMS = 1_000
"""Items in all lists of one call; a schema that requires more refuses what is made here."""
QUESTIONS = frozenset({"query", "q", "question", "search_query", "text", "prompt"})
"""Parameters that get the example's question instead of a plain word."""


def schema_of(tool: ToolDefinition) -> Mapping[str, Any]:
    """The tool's schema; empty where it has none."""
    return tool.input_schema if isinstance(tool.input_schema, Mapping) else {}


def properties_of(tool: ToolDefinition) -> Mapping[str, Any]:
    """The schemas of the tool's parameters, by their names."""
    return schema_of(tool).get("properties") or {}


def arguments_for(
    tool: ToolDefinition, word: str = "test", question: str | None = None, choice: int = 0
) -> dict[str, Any]:
    """Arguments the schema accepts: free text becomes `word`, or the question for parameters named like one.

    Of what may be chosen, `choice` is taken; after the last comes the first again.
    """
    schema = schema_of(tool)
    made = _Maker(schema, word, question, choice).value(schema, "", 0)
    return made if isinstance(made, dict) else {}


def edge_arguments(tool: ToolDefinition) -> list[dict[str, Any]]:
    """Usual arguments with one of them at an edge: 0, negative, nothing, very long. The schema may forbid some.

    Where the schema tells which are required, the first has those alone.
    """
    usual = arguments_for(tool)
    required = {name: value for name, value in usual.items() if name in (schema_of(tool).get("required") or ())}
    least = [required] if 0 < len(required) < len(usual) else []
    edges = [
        {**usual, name: edge}
        for name, value in usual.items()
        for edge in _edges(value)
        if edge != value or type(edge) is not type(value)
    ]
    return [*least, *edges[:EDGES_PER_TOOL]]


def _edges(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int | float):
        return (0, -1)
    if isinstance(value, str):
        return ("", "x" * LONG_TEXT)
    return ([],) if isinstance(value, list) else ()


class _Maker:
    """Makes values for the schema of one tool."""

    def __init__(self, root: Mapping[str, Any], word: str, question: str | None, choice: int) -> None:
        self._root, self._word, self._question, self._choice = root, word, question, choice
        self._items_left = MOST_ITEMS

    def value(self, schema: Any, name: str, depth: int) -> Any:
        schema = self._resolved(schema)
        if depth > 8 or not isinstance(schema, Mapping):
            return None
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][self._choice % len(schema[key])]
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.value(schema[key][0], name, depth + 1)
        return self._typed(schema, name, depth)

    def _typed(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object" or (kind is None and "properties" in schema) or depth == 0:
            return self._object(schema, depth)
        if kind == "array":
            number = min(int(schema.get("minItems", 0)), self._items_left)
            self._items_left -= number
            return [self.value(schema.get("items", {}), name, depth + 1)] * number
        if kind in ("integer", "number"):
            return self._number(schema, kind)
        if kind == "boolean":
            return True
        if kind == "null":
            return None
        return self._text(schema, name)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return {}
        required = schema.get("required", ())
        wanted = [name for name in properties if depth == 0 or name in required]
        return {name: self.value(properties[name], name, depth + 1) for name in wanted}

    def _number(self, schema: Mapping[str, Any], kind: str) -> int | float:
        usual: int | float = 10 if kind == "integer" else 1.0
        low: int | float = max(usual, schema.get("minimum", usual), schema.get("exclusiveMinimum", usual - 1) + 1)
        number: int | float = min(low, schema.get("maximum", low), schema.get("exclusiveMaximum", low + 1) - 1)
        return number

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        text = self._question if self._question is not None and name.lower() in QUESTIONS else self._word
        text = text.ljust(min(int(schema.get("minLength", 0)), LONG_TEXT), "x")
        return text[: int(schema["maxLength"])] if "maxLength" in schema else text

    def _resolved(self, schema: Any) -> Any:
        """Follow local references only; nothing is ever fetched."""
        for _ in range(8):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                return schema
            target: Any = self._root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target.get(part) if isinstance(target, Mapping) else None
            schema = target
        return None
