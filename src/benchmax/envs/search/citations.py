"""Which sources an answer cites: marks such as `[Source: d42]`, compared with the texts that hold the answer.

A text may be cited by its id, or by what its metadata calls it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_MARK = re.compile(r"\[source:([^\[\]]++)\]", re.IGNORECASE | re.ASCII)
NAMES = ("source_id", "id", "file", "title", "url")
"""In metadata."""


class Citations(NamedTuple):
    precision: float
    recall: float


def without_citations(text: str) -> str:
    return _MARK.sub("", text).strip()


def cited(text: str, chunks: Sequence[Mapping[str, Any]]) -> Citations:
    """How many of the marks name one of the texts, and how many of the texts are named; 0 when there are none."""
    marks = {part.strip().casefold() for mark in _MARK.findall(text) for part in mark.split(",")} - {""}
    names = [_names_of(chunk) for chunk in chunks]
    if not marks or not names:
        return Citations(0.0, 0.0)
    known = set().union(*names)
    return Citations(len(marks & known) / len(marks), sum(bool(marks & each) for each in names) / len(names))


def _names_of(chunk: Mapping[str, Any]) -> set[str]:
    metadata = chunk.get("metadata")
    values = (
        [chunk.get("id"), *(metadata.get(name) for name in NAMES)]
        if isinstance(metadata, Mapping)
        else [chunk.get("id")]
    )
    return {str(value).strip().casefold() for value in values if value not in (None, "")}
