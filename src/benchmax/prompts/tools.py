"""Tools as text, and tool calls parsed from text.

The text is the one the Qwen and Hermes chat templates write, so a model trained on it sees the form it
knows, whether the template or `render_tools_prompt` put the tools into the system message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

OPEN_TAG = "<tool_call>"
CLOSE_TAG = "</tool_call>"
BROKEN_CALLS = 64
"""Each takes a scan of the whole text, so endless repetition is not parsed to its end."""

_TOOLS_PROMPT = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

_decode = json.JSONDecoder().raw_decode
_space = re.compile(r"\s*")


class Tool(Protocol):
    """The attributes of a tool definition."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any] | None: ...


class SplitText(NamedTuple):
    """An assistant's text, split into content and calls."""

    content: str
    """The text around the calls; the text itself, unchanged, when there are none."""
    calls: list[dict[str, Any]]
    """`{"name": …, "arguments": …}`, as the model wrote them."""
    malformed: list[str]
    """Bodies that are not a JSON object with a name."""


def mcp2openai(tool: Tool) -> dict[str, Any]:
    """The tool as the OpenAI API describes a function. The tool's own schema is left as it is."""
    schema = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": {**schema, "required": list(schema.get("required") or ())},
            "strict": False,
        },
    }


def render_tools_prompt(tool_definitions: Iterable[Tool], system_message: str = "") -> str:
    """The system message with the tools described below it; unchanged when there are no tools."""
    lines = [json.dumps(mcp2openai(tool), ensure_ascii=False) for tool in tool_definitions]
    if not lines:
        return system_message
    prompt = _TOOLS_PROMPT.format(tools="\n".join(lines))
    return f"{system_message}\n\n{prompt}" if system_message else prompt


def render_tool_call(name: str, arguments: str) -> str:
    """A call as the model writes it; `arguments` is JSON text."""
    return f'{OPEN_TAG}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE_TAG}'


def render_tool_response(content: str) -> str:
    """A tool's answer as the model reads it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def parse_hermes_tool_call(text: str) -> list[dict[str, Any]]:
    """Every well-formed `<tool_call>` body of the text, in order; malformed ones are left out."""
    return split_tool_calls(text).calls


def split_tool_calls(text: str) -> SplitText:
    """Take the tool calls out of an assistant's text.

    The JSON decides where a body ends, so an argument may contain `</tool_call>`. A last call without
    its closing tag counts when its JSON is complete (the tag is often the stop string). After
    `BROKEN_CALLS` that could not be read, the rest is left as text.
    """
    kept: list[str] = []
    calls: list[dict[str, Any]] = []
    malformed: list[str] = []
    done = broken = 0
    start = text.find(OPEN_TAG)
    while start >= 0 and broken < BROKEN_CALLS:
        body, end = _body(text, start + len(OPEN_TAG))
        if body is not None:
            kept.append(text[done:start])
            done = end
            if isinstance(body, str):
                malformed.append(body)
            else:
                calls.append(body)
        broken += not isinstance(body, dict)
        start = text.find(OPEN_TAG, end)
    if done == 0:
        return SplitText(text, calls, malformed)
    kept.append(text[done:])
    return SplitText("".join(kept).strip(), calls, malformed)


def _body(text: str, start: int) -> tuple[dict[str, Any] | str | None, int]:
    """The call that begins at `start` (its raw text when malformed, None when it is prose) and where it ends."""
    begin = _skip_space(text, start)
    try:
        value, stop = _decode(text, begin)
    except (ValueError, RecursionError):
        value, stop = None, -1
    if stop >= 0:
        after = _skip_space(text, stop)
        closed = text.startswith(CLOSE_TAG, after)
        if closed or after == len(text):
            end = after + len(CLOSE_TAG) if closed else after
            return (value if _is_call(value) else text[begin:stop]), end
    return _malformed(text, begin)


def _malformed(text: str, begin: int) -> tuple[str | None, int]:
    following = text.find(OPEN_TAG, begin)
    close = text.find(CLOSE_TAG, begin, following if following >= 0 else len(text))
    if following >= 0 > close:
        # The tag was only mentioned, or a call was begun anew: the next one may be good.
        return None, following
    if close >= 0:
        return text[begin:close].strip(), close + len(CLOSE_TAG)
    if text.startswith("{", begin):
        return text[begin:].strip(), len(text)
    return None, len(text)


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and bool(value["name"])


def _skip_space(text: str, at: int) -> int:
    match = _space.match(text, at)
    return match.end() if match else at
