"""Tables, rows and grids in the notations that answers are asked for in, other than JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from benchmax.doctor.gold.answer_formats import tags
from benchmax.doctor.gold.value_formats import Notation

AS_XML = "as XML"
"""A notation that brings its tags along, and needs no other form."""
_BETWEEN_CELLS = {"spaces": " ", "commas": ",", "commas and spaces": ", ", "nothing": "", "bars": " | "}


def plain(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def of_table(table: Mapping[str, Any]) -> Iterator[Notation]:
    """One table, by itself."""
    yield "as lines", "\n".join(f"{key}: {plain(item)}" for key, item in table.items())
    yield "as assignments", "\n".join(f"{key}={plain(item)}" for key, item in table.items())
    yield "as YAML", "\n".join(line for item in table.items() for line in _yaml(*item))
    texts = [plain(item) for item in table.values()]
    yield "as values with commas", ", ".join(texts)
    yield "as values with spaces", " ".join(texts)
    yield "as a table row", f"| {' | '.join(texts)} |"


def of_pairs(table: Mapping[str, Any]) -> Iterator[Notation]:
    """Keys and values on one line."""
    for how, between in (("hyphens", "-"), ("colons", ": "), ("equals signs", "=")):
        yield f"as pairs with {how}", ", ".join(f"{key}{between}{plain(item)}" for key, item in table.items())


def of_list(items: Sequence[Any]) -> Iterator[Notation]:
    """Single values in Markdown; rows with the same keys, which are the header; rows of cells, a line each."""
    if all(isinstance(item, str | int | float) for item in items):
        yield "as bullets", "\n".join(f"- {plain(item)}" for item in items)
        yield "as numbered lines", "\n".join(f"{at}. {plain(item)}" for at, item in enumerate(items, 1))
    elif all(isinstance(item, Mapping) and list(item) == list(items[0]) for item in items):
        yield from of_cells(list(items[0]), [list(row.values()) for row in items])
    elif is_grid(items):
        for how, between in _BETWEEN_CELLS.items():
            yield f"as lines of cells with {how}", "\n".join(between.join(map(plain, row)) for row in items)


def of_table_in(prompt: str, table: Mapping[str, Any]) -> Iterator[Notation]:
    """One table as the prompt asks for it: its labels on lines, its names of XML elements."""
    labels = {key: label for key in table if (label := _label(prompt, str(key))) is not None}
    if len(labels) == len(table) > 1:
        ordered = sorted(labels, key=lambda key: prompt.index(f"{labels[key]}:"))
        yield "as the prompt's lines", "\n".join(f"{labels[key]}: {plain(table[key])}" for key in ordered)
    named = tags(prompt)
    if named and all(re.fullmatch(r"[A-Za-z_][\w.-]*", str(key)) for key in table):
        root = next((tag for tag in named if tag not in table), None)
        if set(map(str, table)) <= set(named) or "xml" in prompt.lower():
            inner = "".join(f"<{key}>{escape(plain(item))}</{key}>" for key, item in table.items())
            text = f"<{root}>{inner}</{root}>" if root else inner
            yield AS_XML, f"```xml\n{text}\n```" if "```" in prompt else text


def of_cells(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Iterator[Notation]:
    """A header and rows of cells."""
    lines = [[plain(cell) for cell in row] for row in (header, *rows)]
    yield "as CSV", "\n".join(",".join(map(_csv_cell, line)) for line in lines)
    lined = [f"| {' | '.join(line)} |" for line in (lines[0], ["---"] * len(header), *lines[1:])]
    yield "as a Markdown table", "\n".join(lined)


def is_grid(value: Any) -> bool:
    """Whether a value is a list of lists of single values."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, list) and row for row in value)
        and all(isinstance(cell, str | int | float) for row in value for cell in row)
    )


def _label(prompt: str, key: str) -> str | None:
    """How the prompt writes this key where it stands before a colon at the beginning of a line or phrase."""
    name = r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", key)))
    found = re.search(rf"(?:^|(?<=[\n\"'`,;]))\s*({name}):", prompt, re.IGNORECASE)
    return found[1] if found else None


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r"[\",\n]", text) else text


def _yaml(key: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [f"{key}:", *(f"  - {plain(item)}" for item in value)]
    return [f"{key}: {plain(value)}"]
