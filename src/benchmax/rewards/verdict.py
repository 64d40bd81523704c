"""Reads a judge's reply: leniently in form, strictly in content.

Judges wrap their JSON in fences, thoughts and pleasantries; that is accepted. A second, different object, a
missing field or a score off the scale is not: guessing there would add noise to the gradient.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

VERDICT_CHARS = 65_536
"""A longer reply is not a verdict."""
OBJECT_STARTS = 64
"""Opening braces tried before a reply counts as holding no JSON."""


def parse_object(text: str) -> dict[str, Any]:
    """The one JSON object in a judge's reply. Raises ValueError with what is wrong."""
    text = text.rpartition("</think>")[2].strip()
    if not text:
        raise ValueError("the reply is empty")
    if len(text) > VERDICT_CHARS:
        raise ValueError(f"the reply has {len(text)} characters, more than {VERDICT_CHARS}")
    found = _objects(text)
    if not found:
        raise ValueError("the reply holds no JSON object")
    if any(other != found[0] for other in found):
        raise ValueError("the reply holds more than one JSON object")
    return found[0]


def _objects(text: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    found: list[dict[str, Any]] = []
    start = text.find("{")
    for _ in range(OBJECT_STARTS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
            found.append(value)
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    return found


def read_score(verdict: dict[str, Any], allowed: Iterable[float] | None = None) -> float:
    """The verdict's `score`: one of the allowed values, or any number in [0, 1]."""
    score = _number(verdict.get("score"))
    if allowed is None:
        if not 0 <= score <= 1:
            raise ValueError(f'"score" is {score:g}; it must lie between 0 and 1')
        return score
    values = list(allowed)
    for value in values:
        if math.isclose(score, value, abs_tol=1e-6):
            return float(value)
    raise ValueError(f'"score" is {score:g}; it must be one of {", ".join(f"{value:g}" for value in values)}')


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, int | float | str) and len(str(value)) < 100 else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError('"score" is missing or not a number')
    return number


def read_reasoning(verdict: dict[str, Any]) -> str:
    reasoning = verdict.get("reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def read_partition(verdict: dict[str, Any], field: str, labels: Sequence[str]) -> list[list[str]]:
    """Lists of labels under `field` that hold each label exactly once."""
    groups = verdict.get(field)
    if not isinstance(groups, list):
        raise ValueError(f'"{field}" is missing or not a list')
    named = [[str(label).strip() for label in (group if isinstance(group, list) else [group])] for group in groups]
    if sorted(label for group in named for label in group) != sorted(labels):
        raise ValueError(f'"{field}" must name each of {", ".join(labels)} exactly once')
    return [group for group in named if group]
