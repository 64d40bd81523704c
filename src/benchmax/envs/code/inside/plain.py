"""Plain data as JSON that keeps its types: what goes into a solution's process and what comes out of it.

Exact types only. A subclass of int that equals everything is no plain data, and the reader of a line makes values of
its own from it: nothing that a solution defined ever reaches a comparison.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any

LINE = 3
"""The descriptor of the line to the caller; 0, 1 and 2 lead nowhere."""
MOST_DEPTH = 64
_EXACT = 2**53
_COLLECTIONS = {"tuple": tuple, "set": set, "frozenset": frozenset}
_AS_DICT = ("Counter", "OrderedDict", "defaultdict")


class NotPlain(ValueError):
    """A value that is no plain data, or a line that describes none."""


def send(line: bytes) -> None:
    """Send a line to the caller."""
    while line:
        line = line[os.write(LINE, line) :]


def dump(message: dict[str, Any]) -> bytes:
    """A message as one line; values in it were encoded before."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def load(line: bytes) -> dict[str, Any]:
    """The message of a line; NotPlain when it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise NotPlain("no message") from None
    if not isinstance(found, dict):
        raise NotPlain("no message")
    return found


def encode(value: Any, depth: int = 0) -> Any:
    """Plain data as JSON; NotPlain for anything else."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_EXACT < value < _EXACT else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if depth >= MOST_DEPTH:
        raise NotPlain(f"data nested deeper than {MOST_DEPTH} levels")
    if kind is list:
        return [encode(each, depth + 1) for each in value]
    if kind is dict or (kind.__module__ == "collections" and kind.__name__ in _AS_DICT and isinstance(value, dict)):
        return {"dict": [[encode(key, depth + 1), encode(each, depth + 1)] for key, each in dict.items(value)]}
    for name, collection in _COLLECTIONS.items():
        if kind is collection:
            return {name: [encode(each, depth + 1) for each in value]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is complex:
        return {"complex": [encode(value.real), encode(value.imag)]}
    raise NotPlain(f"a {kind.__name__}, which is no plain data")


def decode(found: Any, depth: int = 0) -> Any:
    """The value that `encode` made this of; NotPlain for anything else."""
    if found is None or isinstance(found, (bool, int, float, str)):
        return found
    if depth > MOST_DEPTH:
        raise NotPlain("too deep")
    if isinstance(found, list):
        return [decode(each, depth + 1) for each in found]
    if not isinstance(found, dict) or len(found) != 1:
        raise NotPlain("no value")
    [(kind, inner)] = found.items()
    try:
        return _made(kind, inner, depth)
    except (TypeError, ValueError, OverflowError):
        raise NotPlain(f"no {kind}") from None


def _made(kind: str, inner: Any, depth: int) -> Any:
    if kind == "int":
        return int(inner, 16)
    if kind == "float":
        return float(inner)
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "complex":
        real, imaginary = inner
        return complex(decode(real), decode(imaginary))
    if not isinstance(inner, list):
        raise NotPlain("no items")
    if kind == "dict":
        return {decode(key, depth + 1): decode(each, depth + 1) for key, each in inner}
    if kind not in _COLLECTIONS:
        raise NotPlain("no value")
    return _COLLECTIONS[kind](decode(each, depth + 1) for each in inner)
