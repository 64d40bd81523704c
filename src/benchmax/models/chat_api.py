"""The OpenAI chat API: requests as bytes, replies as a few plain values.

A message is encoded once, when it enters the conversation; a request is those bytes, joined. Replies
are read defensively, because servers differ in details.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import ChatMessage, ToolCall, ToolCallDict, ToolDefinition
from benchmax.errors import ConfigError, ModelProtocolError, ModelRejected
from benchmax.files.display import printable
from benchmax.models.base import FinishReason, Sampling, TokenSegment
from benchmax.prompts.tools import mcp2openai

EXCERPT_CHARS = 200
RESERVED = frozenset({"messages", "stream", "tools", "max_tokens", "max_completion_tokens"})
"""Request fields that `Sampling.extra` may not set."""

Json: TypeAlias = Mapping[str, Any]

_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_FINISH: dict[Any, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


@dataclass(slots=True)
class ServerReply:
    """What a server answered."""

    text: str
    calls: list[ToolCall]
    finish: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    reasoning: str | None = None
    prompt_ids: list[int] | None = None
    sampled_ids: list[int] | None = None
    logprobs: list[float] | None = None


@dataclass(slots=True)
class TokenTrail:
    """The exact tokens of a conversation so far, as long as every request continues the previous one."""

    ids: list[int] = field(default_factory=list)
    exact: bool = True

    def extend(self, reply: ServerReply) -> list[TokenSegment]:
        """The segments this turn added; none from the moment on when the server's tokens contradict the known ones."""
        prompt, sampled, known = reply.prompt_ids, reply.sampled_ids, self.ids
        if not self.exact or prompt is None or sampled is None or prompt[: len(known)] != known:
            self.exact = False
            return []
        segments = []
        if len(prompt) > len(known):
            segments.append(TokenSegment(prompt[len(known) :], sampled=False))
        logprobs = reply.logprobs
        if logprobs is not None and len(logprobs) != len(sampled):
            logprobs = None
        segments.append(TokenSegment(sampled, sampled=True, logprobs=logprobs))
        self.ids = prompt + sampled
        return segments


def turn_cap(sampling: Sampling, max_tokens: int | None) -> int | None:
    """The tighter of the sampling's limit and this turn's."""
    if max_tokens is None or sampling.max_tokens is None:
        return sampling.max_tokens if max_tokens is None else max_tokens
    return min(max_tokens, sampling.max_tokens)


def encode_head(name: str, sampling: Sampling, tools: Sequence[ToolDefinition], *, token_ids: bool) -> bytes:
    """The request up to its messages: all that stays the same for a whole conversation."""
    if taken := RESERVED & sampling.extra.keys():
        raise ConfigError(f"Sampling.extra may not set {', '.join(sorted(taken))}. Remove it.")
    request: dict[str, Any] = {"model": name, "temperature": sampling.temperature, "top_p": sampling.top_p}
    optional = {
        "top_k": sampling.top_k,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "logprobs": sampling.logprobs or None,
        "return_token_ids": (sampling.logprobs and token_ids) or None,
        "tools": [mcp2openai(tool) for tool in tools] or None,
    }
    request |= {field: value for field, value in optional.items() if value is not None}
    return encode(request | sampling.extra)[:-1] + b',"messages":['


def encode(value: Any) -> bytes:
    try:
        return _dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelRejected(f"The request cannot be written as JSON: {error}. Give messages plain values.") from None


def encode_message(message: ChatMessage) -> bytes:
    """The message as a server accepts it."""
    calls = message.get("tool_calls")
    if calls:
        message = {**message, "tool_calls": [_sendable(call) for call in calls]}
    return encode(message)


def _sendable(raw: ToolCallDict) -> ToolCallDict:
    """The call in a form servers accept: they refuse a history whose arguments are not a JSON object."""
    function = raw.get("function")
    if type(function) is dict and function.get("name") and raw.get("id") and _is_object(function.get("arguments")):
        return raw
    call = ToolCall.from_dict(raw)
    arguments = call.arguments if _is_object(call.arguments) else _dumps({"invalid_json": call.arguments})
    return ToolCall(call.name or "invalid", arguments, call.id).to_dict()


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def decode_reply(body: bytes) -> ServerReply:
    """Read a server's reply; raises ModelProtocolError when it is none."""
    raw = _loads(body)
    try:
        choice = raw["choices"][0]
        message = choice["message"]
        calls = [read_call(call) for call in message.get("tool_calls") or ()]
        usage = raw.get("usage") or {}
        reply = ServerReply(
            text=_text_of(message.get("content")) or _text_of(message.get("refusal")),
            calls=calls,
            finish=_finish(choice.get("finish_reason"), calls),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            cost=_number(usage.get("cost")),
            reasoning=_text_of(message.get("reasoning_content") or message.get("reasoning")) or None,
        )
        if "token_ids" in choice or choice.get("logprobs"):
            reply.prompt_ids = _ids(raw.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids"))
            reply.sampled_ids = _ids(choice.get("token_ids"))
            reply.logprobs = _logprobs(choice.get("logprobs"))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError):
        raise not_the_api(body) from None
    return reply


def read_call(raw: Any) -> ToolCall:
    """A tool call in any form; one that makes no sense keeps its text as arguments, to be answered."""
    if not isinstance(raw, Mapping):
        return ToolCall("", json.dumps(raw))
    call = ToolCall.from_dict(raw)
    return call if call.arguments.strip() else ToolCall(call.name, "{}", call.id)


def not_the_api(body: bytes | str) -> ModelProtocolError:
    return ModelProtocolError(
        f"The model server's answer is not a chat completion: {excerpt(body)!r}. "
        "Check that base_url ends where the OpenAI API begins, often in /v1."
    )


def excerpt(text: bytes | str) -> str:
    """The first characters of a server's text, safe to print."""
    if isinstance(text, bytes):
        text = text[: EXCERPT_CHARS * 4].decode("utf-8", "replace")
    return printable(" ".join(text[:EXCERPT_CHARS].split()))


def _loads(body: bytes) -> Any:
    try:
        try:
            return json.loads(body)
        except UnicodeDecodeError:  # a token may end within a character: the rest of the reply is still good
            return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise not_the_api(body) from None


def _text_of(content: Any) -> str:
    """A reply's content as one text."""
    if content is None or type(content) is str:  # as nearly all are
        return content or ""
    if not isinstance(content, (str, list, type(None))):
        raise TypeError("content")
    return content_text(content)


def _finish(reason: Any, calls: list[ToolCall]) -> FinishReason:
    finish = _FINISH.get(reason, "stop") if isinstance(reason, str) else "stop"
    return "tool_calls" if calls and finish == "stop" else finish


def _number(value: Any) -> float | None:
    """A finite number: Python's JSON reads Infinity and NaN, which no record can hold."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _ids(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and set(map(type, value)) <= {int} else None


def _logprobs(value: Any) -> list[float] | None:
    content = value.get("content") if isinstance(value, Mapping) else None
    found = [float(token["logprob"]) for token in content] if content else []
    return found if found and all(map(math.isfinite, found)) else None
