"""The rules for a dataset row, which find every problem at once.

A rule yields a `Complaint`: the column, what is wrong, and how to correct it. With the row's origin it becomes a
`RowIssue`, one line a person can act on. An *error* makes the row unusable; a *warning* is worth a look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from benchmax import limits
from benchmax.envs.base_env import PROMPT_COLUMNS
from benchmax.envs.types import ROLES
from benchmax.files.display import printable

Severity: TypeAlias = Literal["error", "warning"]

EXCERPT_CHARS = 80
_LINE_CHARS = 400
_ROLE_WORDS = {"human": "user", "gpt": "assistant", "bot": "assistant", "ai": "assistant", "model": "assistant"}
_ROLE_WORDS |= {"developer": "system", "function": "tool"}


class Complaint(NamedTuple):
    """What is wrong with a row, without where the row stands."""

    column: str | None
    reason: str
    fix: str
    severity: Severity = "error"
    excerpt: str = ""


class RowFault(Exception):
    """A row that cannot be used; carries every complaint, an error among them."""

    def __init__(self, *complaints: Complaint) -> None:
        super().__init__(complaints[0].reason)
        self.complaints = list(complaints)

    @property
    def complaint(self) -> Complaint:
        return self.complaints[0]


@dataclass(frozen=True, slots=True)
class RowIssue:
    """A problem of one row: where it is, what it is, and how to correct it."""

    source: str
    row: int
    """From 1; in text files the line, as an editor shows it."""
    column: str | None
    """A column, a path into it (`messages[2].role`), or `char 17` of a line that cannot be read."""
    reason: str
    fix: str
    severity: Severity = "error"
    excerpt: str = ""
    """The start of a line that cannot be read."""

    def __str__(self) -> str:
        level = "warning: " if self.severity == "warning" else ""
        where = f"{self.source}:{self.row}: {level}" + (f"{self.column}: " if self.column else "")
        excerpt = f" | {self.excerpt}" if self.excerpt else ""
        return one_line(f"{where}{self.reason} → {self.fix}{excerpt}")


@dataclass(slots=True)
class Row:
    """One row as it was read, with its origin."""

    data: Any
    """The row, a dict when all is well; None when it could not be read."""
    source: str
    number: int
    measured: bool = False
    """The reader has already checked size and depth, and nobody else holds `data`."""
    fault: Complaint | None = None

    def issue(self, complaint: Complaint) -> RowIssue:
        return RowIssue(self.source, self.number, *complaint)


def one_line(text: str, limit: int = _LINE_CHARS) -> str:
    """The text on one line: control characters escaped, the end cut."""
    text = printable(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def json_type(value: Any) -> str:
    """The JSON name of a value's type."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")


# Any row


def too_large(size: int | None = None) -> Complaint:
    much = f"is {size:,} bytes" if size else "is larger"
    return Complaint(
        None, f"the row {much}, the limit is {limits.ROW_BYTES:,} bytes", "shorten it or store files apart"
    )


def too_deep() -> Complaint:
    return Complaint(None, f"the row is nested deeper than {limits.JSON_DEPTH} levels", "flatten it")


def deeper(value: Any, levels: int) -> bool:
    """Whether containers are nested deeper than `levels`; walks level by level, so never recurses."""
    layer = [value]
    for _ in range(levels):
        inside = (item for box in layer for item in (box.values() if isinstance(box, dict) else box))
        layer = [item for item in inside if isinstance(item, dict | list)]
        if not layer:
            return False
    return True


def check_shape(data: Any) -> Complaint | None:
    """A row is an object with a bounded number of columns."""
    if not isinstance(data, dict):
        if isinstance(data, list) and deeper(data, limits.JSON_DEPTH):
            return too_deep()
        return Complaint(
            None, f"the row is {json_type(data)}, not an object", 'write {"prompt": "…", "ground_truth": "…"}'
        )
    if len(data) > limits.ROW_COLUMNS:
        return Complaint(
            None, f"the row has {len(data):,} columns, the limit is {limits.ROW_COLUMNS:,}", "remove columns"
        )
    return None


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def copy_row(data: dict[Any, Any]) -> dict[Any, Any]:
    """A copy that user code may change freely; RowFault when the row is too deep or too large.

    The size is that of its text, which is never more than that of its JSON.
    """
    copy, size = _copied(data, 1)
    if size > limits.ROW_BYTES:
        raise RowFault(too_large(size))
    return copy  # type: ignore[no-any-return]


def _copied(value: Any, depth: int) -> tuple[Any, int]:
    if isinstance(value, str):
        return value, utf8_size(value)
    if not isinstance(value, dict | list):
        return value, 1
    if depth > limits.JSON_DEPTH:
        raise RowFault(too_deep())
    size = 0
    if isinstance(value, list):
        items = []
        for item in value:
            copy, much = _copied(item, depth + 1)
            items.append(copy)
            size += much
        return items, size
    entries = {}
    for key, item in value.items():
        entries[key], much = _copied(item, depth + 1)
        size += much + len(str(key))
    return entries, size


# Rows with the default columns


def check_columns(row: Mapping[str, Any]) -> Iterator[Complaint]:
    """The rules of `prompt_messages`, `messages`, `prompt` and `init_rollout_args`."""
    present = [column for column in PROMPT_COLUMNS if row.get(column) is not None]
    if not present:
        yield _no_prompt(row)
    else:
        if len(present) > 1:
            both = f"the row has {' and '.join(present)}; {present[0]} is used"
            yield Complaint(None, both, f"keep only {present[0]}", "warning")
        yield from _check_prompt(present[0], row[present[0]])
    if (arguments := row.get("init_rollout_args")) is not None and not isinstance(arguments, dict):
        yield Complaint(
            "init_rollout_args", f"is {json_type(arguments)}, not an object", 'write {"name": value} or leave it out'
        )


def _no_prompt(row: Mapping[str, Any]) -> Complaint:
    if empty := next((column for column in PROMPT_COLUMNS if column in row), ""):
        return Complaint(empty, "is empty", "write what the model is asked")
    columns = ", ".join(one_line(str(column), 40) for column in list(row)[:10]) or "none"
    return Complaint(
        None,
        f"the row has neither prompt nor messages; its columns are: {columns}",
        "rename a column to prompt or messages, or override dataset_preprocess",
    )


def _check_prompt(column: str, value: Any) -> Iterator[Complaint]:
    if column != "prompt" or isinstance(value, list):
        yield from check_messages(column, value)
    elif not isinstance(value, str):
        yield Complaint(column, f"is {json_type(value)}, not text", "write the question as text, or messages as a list")
    elif not value.strip():
        yield Complaint(column, "is empty", "write what the model is asked")


# Conversations


def check_messages(column: str, messages: Any) -> Iterator[Complaint]:
    """The rules of a conversation the model is to continue."""
    if not isinstance(messages, list):
        yield Complaint(column, f"is {json_type(messages)}, not a list", 'write [{"role": "user", "content": "…"}]')
        return
    if not messages:
        yield Complaint(column, "is an empty list", "write at least one message")
        return
    for index, message in enumerate(messages):
        # The usual message passes here; the rules below say what else may.
        if type(message) is dict and message.get("role") == "user" and type(message.get("content")) is str:
            continue
        yield from _check_message(f"{column}[{index}]", message)
    if not any(isinstance(message, dict) and _says_something(message) for message in messages):
        yield Complaint(column, "has no text in any message", "write what the model is asked")
    last = messages[-1]
    if isinstance(last, dict) and last.get("role") == "assistant":
        yield Complaint(
            column, "ends with an assistant message, so nothing is asked", "end with a user message", "warning"
        )


def _says_something(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return bool(content.strip() if isinstance(content, str) else content) or bool(message.get("tool_calls"))


def _check_message(path: str, message: Any) -> Iterator[Complaint]:
    if not isinstance(message, dict):
        yield Complaint(path, f"is {json_type(message)}, not a message", 'write {"role": "user", "content": "…"}')
        return
    yield from _check_role(path, message)
    yield from _check_content(f"{path}.content", message.get("content"))
    if message.get("tool_calls") is not None:
        yield from _check_tool_calls(f"{path}.tool_calls", message["tool_calls"])


def _check_role(path: str, message: dict[str, Any]) -> Iterator[Complaint]:
    role = message.get("role")
    known = ", ".join(ROLES)
    if role is None:
        yield Complaint(path, "has no role", f"add one of {known}")
    elif role not in ROLES:
        better = _ROLE_WORDS.get(str(role).lower())
        reason = f"is {one_line(ascii(role), 40)}, not one of {known}"
        yield Complaint(f"{path}.role", reason, f"write {better!r}" if better else f"use one of {known}")
    elif role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield Complaint(path, "is a tool message without tool_call_id", "name the call it answers in tool_call_id")


def _check_content(path: str, content: Any) -> Iterator[Complaint]:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        yield Complaint(path, f"is {json_type(content)}, not text", "write text, null or a list of content parts")
        return
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            reason = f"is {json_type(part)}, not a content part" if not isinstance(part, dict) else "has no type"
            yield Complaint(f"{path}[{index}]", reason, 'write {"type": "text", "text": "…"}')


def _check_tool_calls(path: str, calls: Any) -> Iterator[Complaint]:
    shape = 'write {"id": "…", "type": "function", "function": {"name": "…", "arguments": "{}"}}'
    if not isinstance(calls, list):
        yield Complaint(path, f"is {json_type(calls)}, not a list", f"{shape} in a list")
        return
    for index, call in enumerate(calls):
        where = f"{path}[{index}]"
        if not isinstance(call, dict):
            yield Complaint(where, f"is {json_type(call)}, not a tool call", shape)
            continue
        body = call.get("function", call)
        if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not body["name"]:
            yield Complaint(where, "names no function", shape)
        elif body is not call and not isinstance(body.get("arguments", ""), str):
            reason = f"has arguments that are {json_type(body['arguments'])}, not JSON text"
            yield Complaint(where, reason, "use json.dumps(arguments)", "warning")
