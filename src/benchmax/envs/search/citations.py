"""Which sources an answer cites: marks such as `[Source: d42]`, compared with the texts that hold the answer.

A text may be cited by its id, or by what its metadata calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.envs.reward_helpers import SOURCE_MARK, CitationScore

NAMES = ("source_id", "id", "file", "title", "url")
"""In metadata."""


def without_citations(text: str) -> str:
    return SOURCE_MARK.sub("", text).strip()


def cited(text: str, chunks: Sequence[Mapping[str, Any]]) -> CitationScore:
    """The share of marks that name one of the texts, and of texts that are named; 0 when there are none."""
    marks = {part.strip().casefold() for mark in SOURCE_MARK.findall(text) for part in mark.split(",")} - {""}
    names = [_names_of(chunk) for chunk in chunks]
    if not marks or not names:
        return CitationScore(0.0, 0.0)
    known = set().union(*names)
    return CitationScore(len(marks & known) / len(marks), sum(bool(marks & each) for each in names) / len(names))


def _names_of(chunk: Mapping[str, Any]) -> set[str]:
    metadata = chunk.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    values = (chunk.get("id"), *map(known.get, NAMES))
    return {str(value).strip().casefold() for value in values if value not in (None, "")}
