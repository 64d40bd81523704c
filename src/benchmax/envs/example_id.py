"""An example's id: the SHA-256 of its prompt and task.

The same row has the same id from Python, JSONL, CSV or parquet, today and after a restart. For that the
value is first made canonical: 1.0 becomes 1, entries that are None are dropped, tuples become lists, and
whatever two JSON readers could read differently (NaN, huge integers, half of a surrogate pair) is refused.
`init_rollout_args` describe the set-up, not the task, and are not part of the id.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from benchmax import limits
from benchmax.envs.types import ChatMessage, Example, Messages, nest_tool_calls
from benchmax.errors import UsageError

ID_VERSION = 3
MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


class JsonFault(NamedTuple):
    """Where a value is not plain JSON, why, and what to do."""

    path: str
    reason: str
    fix: str


class _Refused(Exception):
    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix, self.path = reason, fix, ""


def canonical_example_id(prompt_messages: Iterable[Mapping[str, Any]], task: Mapping[str, Any] | None) -> str:
    """The id (64 hex characters) of an example with this prompt and task."""
    try:
        body = {"v": ID_VERSION, "prompt_messages": _part("prompt_messages", list(prompt_messages))}
        if task is not None:
            body["task"] = _part("task", task)
    except _Refused as refused:
        raise UsageError(f"{refused.path} {refused.reason}: {refused.fix}.") from None
    return hashlib.sha256(_ENCODE(body).encode()).hexdigest()


def make_example(
    prompt_messages: Iterable[ChatMessage],
    task: dict[str, Any] | None = None,
    init_rollout_args: dict[str, Any] | None = None,
    system_prompt: str | None = None,
) -> Example:
    """An Example with its id. A non-empty `system_prompt` becomes the first message, and part of the id."""
    messages = _messages(prompt_messages)
    if system_prompt:
        messages.insert(0, {"role": "system", "content": system_prompt})
    return {
        "id": canonical_example_id(messages, task),
        "prompt_messages": messages,
        "task": task,
        "init_rollout_args": init_rollout_args,
    }


def json_fault(value: Any) -> JsonFault | None:
    """The first thing in `value` that an example cannot hold, or None."""
    try:
        _plain(value, 1)
    except _Refused as refused:
        return JsonFault(refused.path.removeprefix("."), refused.reason, refused.fix)
    return None


def _messages(prompt_messages: Any) -> Messages:
    """A new list of the messages, tool calls in the nested form."""
    if isinstance(prompt_messages, str | bytes | Mapping):
        raise UsageError(
            f"prompt_messages is a {type(prompt_messages).__name__}, not a list of messages: "
            'write [{"role": "user", "content": "…"}].'
        )
    messages: Messages = []
    for index, message in enumerate(prompt_messages):
        if not isinstance(message, dict):
            raise UsageError(
                f"prompt_messages[{index}] is a {type(message).__name__}, not a message: "
                'write {"role": "user", "content": "…"}.'
            )
        turn, calls = cast(ChatMessage, message), message.get("tool_calls")
        well_formed = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
        messages.append(nest_tool_calls(turn) if well_formed else turn)
    return messages


def _part(name: str, value: Any) -> Any:
    try:
        return _plain(value, 1)
    except _Refused as refused:
        refused.path = name + refused.path
        raise


def _plain(value: Any, depth: int) -> Any:
    """The canonical form of a JSON value; `depth` is the level of `value` if it is a container."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if value is None or kind is bool:
        return value
    if kind is dict:
        return _plain_dict(value, depth)
    if kind is list or kind is tuple:
        return _plain_list(value, depth)
    if kind is int:
        return _integer(value)
    if kind is float:
        return _float(value)
    return _plain(_base_value(value), depth)


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    _check_depth(depth)
    plain: dict[str, Any] = {}
    key: Any = ""
    try:
        for key, item in value.items():
            if not isinstance(key, str):
                raise _Refused("is a key that is not text", "use text for every key")
            if item is not None:
                plain[key if key.isascii() else _text(key)] = _plain(item, depth + 1)
    except _Refused as refused:
        refused.path = f".{key}{refused.path}"
        raise
    return plain


def _plain_list(value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    _check_depth(depth)
    plain: list[Any] = []
    try:
        for item in value:
            plain.append(_plain(item, depth + 1))
    except _Refused as refused:
        refused.path = f"[{len(plain)}]{refused.path}"
        raise
    return plain


def _check_depth(depth: int) -> None:
    if depth > limits.JSON_DEPTH:
        raise _Refused(f"is nested deeper than {limits.JSON_DEPTH} levels", "flatten it")


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Refused(
            "holds half of a surrogate pair, which is no character", "remove it or write the whole character"
        ) from None
    return value


def _integer(value: int) -> int:
    if -MAX_INTEGER <= value <= MAX_INTEGER:
        return value
    raise _Refused("is an integer beyond 2^53-1, which JSON readers round", "write it as text")


def _float(value: float) -> int | float:
    if value.is_integer():
        return _integer(int(value))
    if not math.isfinite(value):
        name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        raise _Refused(f"is {name}, which is not JSON", "write null or a finite number")
    return value


def _base_value(value: Any) -> Any:
    """The JSON value of a subclass's instance (an enum member, an OrderedDict, numpy's float64)."""
    if isinstance(value, str):
        return str.__str__(value)
    kinds: tuple[type[Any], ...] = (int, float, dict)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list | tuple):
        return list(value)
    raise _Refused(f"is a {type(value).__name__}, which is not JSON", "turn it into text, a number, a list or a dict")
