"""Values to call a tool with, found in the prompt, the task and earlier results, each with the place it was found in.

The place (`word -1 of the prompt`, `the last result`) has the same meaning on every row, so that what solved one row is
tried first on the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from benchmax.doctor.gold.ground_truths import question
from benchmax.doctor.gold.value_formats import iso_dates
from benchmax.doctor.tool_arguments import properties_of, schema_of
from benchmax.envs.base_env import PROMPT_COLUMNS
from benchmax.envs.loading import json_or_text
from benchmax.envs.types import Example, ToolDefinition

_QUOTED = re.compile(r"[\"'`“]([^\"'`”\n]{1,80})[\"'`”]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAMES = re.compile(r"\b[A-Z][\w-]*(?:\s+[A-Z][\w-]*)*")
_WORD = re.compile(r"[\w@./-]*\w")
_PIECE = re.compile(rf"{_WORD.pattern}|[^\w\s]|\n")
_FILLERS = re.compile(
    r"a|an|and|are|as|at|be|by|do|does|find|for|from|give|has|have|how|i|in|is|it|its|look|many|me|much|my|of|on|one|or|"
    r"please|tell|that|the|then|there|this|to|use|was|what|when|where|which|who|whose|with|you|your",
    re.IGNORECASE,
)
"""Words that no tool is called with."""
LONGEST = 400
MOST_OF_A_KIND = 12
MOST_PHRASES, PHRASE_WORDS = 4, 4
PER_PARAMETER = 40
PER_TOOL = 120
MOST_TRIED = 10_000
USUAL_NUMBER = "a usual number"
"""The place of a number that stands nowhere: a count begins with it."""


class Value(NamedTuple):
    """A value to call a tool with."""

    place: str
    value: Any


class Arguments(NamedTuple):
    """Arguments for one call, and the place of each of them."""

    values: dict[str, Any]
    places: tuple[str, ...]


def values(example: Example, results: Sequence[str]) -> list[Value]:
    """All values to call tools with, the likely first; each once, and once more where a column names it."""
    found: dict[tuple[str, bool], Value] = {}
    for value in _all(example, results):
        if not isinstance(value.value, str) or 0 < len(value.value.strip()) <= LONGEST:
            found.setdefault((repr(value.value), value.place.startswith("column ")), value)
    return list(found.values())


def _all(example: Example, results: Sequence[str]) -> Iterator[Value]:
    for back, text in enumerate(reversed(results)):
        yield Value(f"result -{back + 1}", text.strip())
        yield from values_in_json(f"result -{back + 1}", text)
        yield from _in_text(f"result -{back + 1}", text)
    yield from _in_text("prompt", question(example))
    for name, value in _columns(example).items():
        if isinstance(value, str | int | float | list):
            yield Value(f"column {name}", value)
        if isinstance(value, list):
            yield from (Value(f"column {name} {at}", item) for at, item in enumerate(value[:MOST_OF_A_KIND]))
        if isinstance(value, Mapping) and name in (example.get("task") or {}):
            yield Value(f"column {name}", value)
            yield from (Value(f"column {name} {key}", item) for key, item in islice(value.items(), MOST_OF_A_KIND))


def _in_text(where: str, text: str) -> Iterator[Value]:
    kinds = (
        ("quoted", _QUOTED.findall(text)),
        ("date", list(iso_dates(text))),
        ("name", [name for name in _NAMES.findall(text) if not _FILLERS.fullmatch(name)]),
        ("phrase", _phrases(text)[-MOST_PHRASES:]),
        ("number", _NUMBER.findall(text)),
        ("word", [word for word in _WORD.findall(text) if not _FILLERS.fullmatch(word)]),
    )
    for kind, found in kinds:
        for at, item in enumerate(found[-MOST_OF_A_KIND:]):
            # Counted from the end: what is asked for is usually there, whatever comes before.
            yield Value(f"{kind} {at - len(found[-MOST_OF_A_KIND:])} of {where}", item)


def _phrases(text: str) -> list[str]:
    """A few words in a row, between words that no tool is called with: `brass hinge` in `who has a brass hinge?`."""
    runs: list[list[str]] = [[]]
    for word in _PIECE.findall(text):
        if not _WORD.fullmatch(word) or _FILLERS.fullmatch(word) or _NUMBER.fullmatch(word):
            runs.append([])
        else:
            runs[-1].append(word)
    return [" ".join(run) for run in runs if 1 < len(run) <= PHRASE_WORDS]


def values_in_json(where: str, text: str) -> Iterator[Value]:
    """The values of an object, or of the first objects of a list, where the text is JSON."""
    value = json_or_text(text)
    for row in value[:3] if isinstance(value, list) else [value]:
        if isinstance(row, Mapping):
            yield from (Value(f"{key} of {where}", value) for key, value in row.items())


def arguments(tool: ToolDefinition, found: Sequence[Value]) -> Iterator[Arguments]:
    """Arguments its schema may accept, made from the values."""
    properties = properties_of(tool)
    required = [name for name in _required(tool) if name in properties] or list(properties)
    choices = [[(name, *choice) for choice in _choices(name, properties[name], found)] for name in required]
    if all(choices):
        # The likely values of all parameters first, not all values of the last one with the likeliest of the others.
        ranks = product(*(range(len(each)) for each in choices))
        for ranked in sorted(islice(ranks, MOST_TRIED), key=sum)[:PER_TOOL]:
            picked = [choices[at][rank] for at, rank in enumerate(ranked)]
            yield Arguments({name: value for name, _, value in picked}, tuple(place for _, place, _ in picked))
    if properties and not schema_of(tool).get("required"):
        yield Arguments({}, ())


def one_for_each(tool: ToolDefinition, example: Example) -> Iterator[list[Arguments]]:
    """Arguments for a call with each entry of a list or table of the row: an order of several things, say."""
    names = _required(tool)
    for column, value in _columns(example).items():
        if isinstance(value, list | Mapping):
            entries = value.items() if isinstance(value, Mapping) else value
            made = [_entry(names, entry) for entry in islice(entries, MOST_OF_A_KIND + 1)]
            if 1 < len(made) <= MOST_OF_A_KIND and all(made):
                yield [Arguments(each, (f"each of column {column}",) * len(each)) for each in made if each]


def calls_in_row(tools: Sequence[ToolDefinition], example: Example) -> Iterator[list[tuple[ToolDefinition, Arguments]]]:
    """Calls that the row itself holds: arguments under their names, or tools' names with their arguments."""
    row = {name: _decoded(value) for name, value in _columns(example).items()}
    lists = [value for value in row.values() if isinstance(value, list)]
    for place, value in (("the row", row), *((f"told in {name}", value) for name, value in row.items())):
        entries = value if isinstance(value, list) else [value]
        # Of a final state only what the row does not begin with has to be done.
        new = [each for each in entries if not any(each in other for other in lists if other is not value)]
        for some in [entries] if len(new) in (0, len(entries)) else [new, entries]:
            calls = [_call_in(tools, entry, place) for entry in some[: MOST_OF_A_KIND + 1]]
            if 0 < len(calls) <= MOST_OF_A_KIND and all(calls):
                yield [each for each in calls if each]


def _call_in(tools: Sequence[ToolDefinition], entry: Any, place: str) -> tuple[ToolDefinition, Arguments] | None:
    """The call in an entry: a tool's name and a mapping beside it, or a mapping with the names of its parameters."""
    if not isinstance(entry, Mapping):
        return None
    nested = [each for each in entry.values() if isinstance(each, Mapping)]
    inside = [value for part in (entry, *nested) for value in part.values()]
    named = [tool for tool in tools if tool.name in inside]
    given = [each for each in map(_decoded, inside) if isinstance(each, Mapping)]
    for tool in sorted(named or tools, key=lambda tool: -len(_required(tool))):
        needed = set(_required(tool))
        made = next((each for each in ([*given, {}] if named else [entry]) if needed <= set(each)), None)
        if made is not None and (named or needed):
            known = {name: made[name] for name in properties_of(tool) if name in made}
            return tool, Arguments(known, (place,) * len(known))
    return None


def _decoded(value: Any) -> Any:
    """Calls and arguments may be written as JSON, as the wire has them."""
    return json_or_text(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def _columns(example: Example) -> dict[str, Any]:
    row = {**(example.get("init_rollout_args") or {}), **(example.get("task") or {})}
    return {name: value for name, value in row.items() if name not in (*PROMPT_COLUMNS, "init_rollout_args")}


def _required(tool: ToolDefinition) -> list[str]:
    """The parameters that a call must have; all of them where none is said to be."""
    return list(schema_of(tool).get("required") or properties_of(tool))


def _entry(names: Sequence[str], entry: Any) -> dict[str, Any] | None:
    """One entry as arguments: by the names it has, or in the order of the parameters."""
    if isinstance(entry, Mapping):
        return {name: entry[name] for name in names} if names and set(names) <= set(entry) else None
    parts = list(entry) if isinstance(entry, list | tuple) else [entry]
    return dict(zip(names, parts, strict=True)) if len(parts) == len(names) else None


def _choices(name: str, schema: Any, found: Sequence[Value]) -> list[tuple[str, Any]]:
    if not isinstance(schema, Mapping):
        schema = {}
    if isinstance(schema.get("enum"), list):
        return [(f"choice {at}", value) for at, value in enumerate(schema["enum"])]
    kind = schema.get("type")
    if kind == "boolean":
        return [("true", True), ("false", False)]
    # A column or key with the parameter's name most likely belongs to it, and a number hardly to a text.
    dated = schema.get("format") == "date" or "YYYY-MM-DD" in str(schema.get("description"))
    fitting: dict[str, tuple[str, Any]] = {}
    unlikely: dict[str, tuple[bool, bool]] = {}
    for place, given in found:
        if (cast := _cast(given, kind)) is not None:
            named = {name, name.rpartition("_")[2]} & set(place.split()) or (dated and place.startswith("date "))
            rank = (not named, kind == "string" and bool(_NUMBER.fullmatch(cast)))
            if rank < unlikely.get(repr(cast), (True, True, True)):
                fitting[repr(cast)], unlikely[repr(cast)] = (place, cast), rank
    # What counts begin with: the first page, the least that is allowed.
    usual = (schema.get("default"), schema.get("minimum"), 1, 2, 3) if kind in ("integer", "number") else ()
    for number in (each for each in usual if type(each) is int):
        fitting.setdefault(repr(number), (USUAL_NUMBER, number))
        unlikely.setdefault(repr(number), (True, True))
    return [fitting[key] for key in sorted(fitting, key=unlikely.__getitem__)][:PER_PARAMETER]


def _cast(value: Any, kind: Any) -> Any:
    if kind in ("integer", "number"):
        try:
            return None if isinstance(value, bool) else int(value) if kind == "integer" else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
    if kind == "array":
        return value if isinstance(value, list) else None
    if kind == "object":
        return value if isinstance(value, Mapping) else None
    return str(value) if not isinstance(value, list | Mapping) else None
