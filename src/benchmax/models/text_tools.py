"""Tools, calls and results as text, for servers without native tool calls.

The form is Qwen's: tools in the system message, `<tool_call>` in the assistant's text, results in a
user message between `<tool_response>` tags. What the model wrote is sent back unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import ChatMessage, Messages, ToolCall, ToolDefinition
from benchmax.prompts.tools import render_tool_call, render_tool_response, render_tools_prompt, split_tool_calls

_name = re.compile(r'"name"\s*:\s*"([^"\\]{1,200})"')


def opening(new: Sequence[ChatMessage], tools: Sequence[ToolDefinition]) -> Messages:
    """The first messages, with the tools in the system message."""
    messages = list(new)
    if not tools:
        return messages
    system = messages.pop(0) if messages and messages[0]["role"] == "system" else None
    text = render_tools_prompt(tools, plain_text(system.get("content")) if system else "")
    return [{"role": "system", "content": text}, *messages]


def as_text(messages: Sequence[ChatMessage]) -> Messages:
    """The messages without tool roles and tool calls; neighbouring tool results share one user message."""
    result: Messages = []
    answering = False
    for message in messages:
        if message["role"] == "tool":
            text = render_tool_response(plain_text(message.get("content")))
            if answering:
                result[-1]["content"] += "\n" + text
            else:
                result.append({"role": "user", "content": text})
            answering = True
        else:
            result.append(_assistant(message) if message.get("tool_calls") else message)
            answering = False
    return result


def read_calls(text: str) -> tuple[str, list[ToolCall]]:
    """The text around the calls, and the calls. A malformed body is a call with its text as arguments."""
    content, calls, malformed = split_tool_calls(text)
    found = [ToolCall.from_dict({"name": call["name"], "arguments": call.get("arguments")}) for call in calls]
    for body in malformed:
        name = _name.search(body)
        found.append(ToolCall(name[1] if name else "", body))
    return content, found


def plain_text(content: Any) -> str:
    """A message's content as one text; a value that is no text is written as JSON."""
    if isinstance(content, (str, list, type(None))):
        return content_text(content)
    return json.dumps(content, ensure_ascii=False, default=str)


def _assistant(message: ChatMessage) -> ChatMessage:
    calls = [ToolCall.from_dict(call) for call in message["tool_calls"]]
    parts = [plain_text(message.get("content")), *(render_tool_call(call.name, call.arguments) for call in calls)]
    return {"role": "assistant", "content": "\n".join(part for part in parts if part)}
