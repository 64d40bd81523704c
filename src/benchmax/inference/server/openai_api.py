"""The OpenAI wire format, seen from a server: requests read strictly, replies in the shapes clients expect.

What this server cannot do is refused, never ignored: a request for JSON mode or a penalty, or with an unknown field, is
an error. Token ids use vLLM's field names (`return_token_ids`, `prompt_token_ids`, `token_ids`).
"""

from __future__ import annotations

import difflib
import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, Field, PrivateAttr, field_validator, model_validator

from benchmax import limits
from benchmax.envs.types import ROLES, ChatMessage, Messages, ToolDefinition
from benchmax.errors import ModelRejected
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import derive_seed
from benchmax.models.base import Sampling

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["chat.completion", "chat.completion.chunk", "text_completion"]

MAX_CHOICES = 128
LONG_BYTES = 20_000
"""A longer request takes more than a few milliseconds to tokenise."""
IGNORED = frozenset({
    "cache_prompt", "cache_salt", "metadata", "prediction", "priority", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "request_id", "safety_identifier", "service_tier", "store", "user",
})  # fmt: skip
"""Fields that do not change the answer, whatever they hold: labels of a request, and hints on speed."""
NEUTRAL: dict[str, Any] = {
    "add_generation_prompt": True, "bad_words": [], "best_of": 1, "chat_template_kwargs": {},
    "continue_final_message": False, "dry_multiplier": 0, "echo": False, "frequency_penalty": 0,
    "function_call": "none", "functions": [], "ignore_eos": False, "include_stop_str_in_output": False,
    "length_penalty": 1, "logit_bias": {}, "logits_processors": [], "min_p": 0, "min_tokens": 0, "mirostat": 0,
    "modalities": ["text"], "parallel_tool_calls": True, "presence_penalty": 0, "reasoning_effort": "none",
    "repetition_penalty": 1, "response_format": {"type": "text"}, "return_tokens_as_token_ids": False,
    "skip_special_tokens": True, "spaces_between_special_tokens": True, "stop_token_ids": [], "suffix": "",
    "top_logprobs": 0, "typical_p": 1, "use_beam_search": False, "verbosity": "medium",
}  # fmt: skip
"""Fields that this server does not support, each with the value that changes nothing; any other is refused."""


class Known(BaseModel):
    """A part of a request in which an unknown field is refused by name; null is the default of any."""

    ignored: ClassVar[Collection[str]] = ()
    neutral: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @model_validator(mode="before")
    @classmethod
    def _known(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        given = {name: value for name, value in raw.items() if value is not None}
        for name in given:
            known = name in cls.model_fields or name in cls.ignored
            if known or (name in cls.neutral and given[name] == cls.neutral[name]):
                continue
            close = difflib.get_close_matches(name, cls.model_fields, n=1, cutoff=0.8)
            hint = f"did you mean {close[0]}?" if close else "leave it out"
            raise ValueError(f"{name[:100]}: not supported by this server; {hint}")
        return given


class StreamOptions(Known):
    ignored = frozenset({"include_obfuscation"})
    """Padding against eavesdroppers on a provider's connection; it does not change the answer."""
    include_usage: bool = False


class Request(Known):
    """What both endpoints take."""

    ignored, neutral = IGNORED, NEUTRAL
    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0, le=100, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int | None = None
    seed: int | None = None
    stop: list[str] = []
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False
    _bytes: int = PrivateAttr(0)

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Parse what a client sent."""
        try:
            raw = json.loads(body)
        except (ValueError, RecursionError):
            raise ModelRejected("The request body is not JSON.") from None
        request = cls.model_validate(raw)
        request._bytes = len(body)
        return request

    @property
    def is_long(self) -> bool:
        """Whether making its prompt would hold up other requests."""
        return self._bytes > LONG_BYTES

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _few_and_short(cls, stops: list[str]) -> list[str]:
        if len(stops) > limits.SERVE_STOPS:
            raise ValueError(f"{len(stops):,} texts; the limit is {limits.SERVE_STOPS}")
        if (longest := max(map(len, stops), default=0)) > limits.SERVE_STOP_CHARS:
            raise ValueError(f"a text of {longest:,} characters; the limit is {limits.SERVE_STOP_CHARS:,}")
        return stops

    def sampling(self, choice: int) -> Sampling:
        """How the choice of that index is drawn."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k if self.top_k and self.top_k > 0 else None,
            max_tokens=self.max_tokens,
            stop=tuple(filter(None, self.stop)),
            seed=None if self.seed is None else derive_seed(self.seed, choice),
        )


class FunctionSpec(Known):
    ignored = frozenset({"strict"})
    """A request to enforce the schema, which clients send with every tool; what comes may be checked there."""
    name: str = Field(min_length=1)
    description: str = ""
    parameters: Json | None = None

    @field_validator("parameters")
    @classmethod
    def _schema(cls, schema: Json | None) -> Json | None:
        required = (schema or {}).get("required") or []
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise ValueError("'required' must be a list of names")
        return schema


class ToolSpec(Known):
    type: Literal["function"]
    function: FunctionSpec


class ChatRequest(Request):
    messages: list[Json] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    max_context_tokens: int | None = Field(None, ge=1)
    """Most tokens of the conversation with its reply, where that is fewer than the model takes."""
    tools: list[ToolSpec] = []
    tool_choice: Literal["auto", "none"] = "auto"
    logprobs: bool = False

    @field_validator("messages")
    @classmethod
    def _roles(cls, messages: list[Json]) -> list[Json]:
        for index, message in enumerate(messages):
            if message.get("role") == "developer":
                message["role"] = "system"
            if message.get("role") not in ROLES:
                raise ValueError(f"message {index} has the role {message.get('role')!r}; use {', '.join(ROLES)}")
            if wrong := _wrong_part(message):
                raise ValueError(f"message {index}: {wrong}")
        return messages

    @model_validator(mode="after")
    def _newer_name(self) -> ChatRequest:
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self

    def chat(self) -> Messages:
        return [ChatMessage(**message) for message in self.messages]  # type: ignore[typeddict-item]

    def definitions(self) -> tuple[ToolDefinition, ...]:
        if self.tool_choice == "none":
            return ()
        specs = (tool.function for tool in self.tools)
        return tuple(ToolDefinition(spec.name, spec.description, spec.parameters) for spec in specs)


class CompletionRequest(Request):
    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=1)
    """0 or 1: the sampled token's own."""
    best_of: int | None = None

    @model_validator(mode="after")
    def _all_of(self) -> CompletionRequest:
        if self.best_of not in (None, self.n):
            raise ValueError("best_of is not supported by this server; leave it out")
        if (answers := len(self.each()) * self.n) > limits.SERVE_ANSWERS:
            raise ValueError(
                f"prompts times n are {answers:,} answers; the limit is {limits.SERVE_ANSWERS:,}. Send several requests"
            )
        return self

    def each(self) -> Sequence[str | list[int]]:
        """Every prompt as it was given, text or ids."""
        if isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int)):
            return [self.prompt]
        return cast("list[str] | list[list[int]]", self.prompt)

    def prompts(self, chat: ChatTokens) -> list[list[int]]:
        """Every prompt as ids."""
        encoded = [chat.encode(one, whole=True) if isinstance(one, str) else one for one in self.each()]
        if not encoded or not all(encoded):
            raise ValueError("prompt is empty")
        vocabulary = chat.vocabulary
        if any(not 0 <= token < vocabulary for ids in encoded for token in ids):
            raise ValueError(f"prompt has a token id outside 0…{vocabulary - 1}")
        return encoded


def _wrong_part(message: Json) -> str:
    content, calls = message.get("content"), message.get("tool_calls") or []
    if not isinstance(content, (str, list, type(None))) or (
        isinstance(content, list) and not all(isinstance(part, dict) for part in content)
    ):
        return "content must be a text or a list of parts"
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return "tool_calls must be a list of objects"
    if not all(isinstance(call.get("function"), dict) for call in calls):
        return "a tool call needs a function"
    return ""


def reply_head(kind: Kind, model: str) -> Json:
    """What every part of one answer repeats."""
    name = f"{'cmpl' if kind == 'text_completion' else 'chatcmpl'}-{uuid.uuid4().hex}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": model}


def usage(prompt_tokens: int, completion_tokens: int) -> Json:
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def chat_message(message: ChatMessage) -> Json:
    """The assistant's message as the API writes it."""
    reply: Json = {"role": "assistant", "content": message["content"], "refusal": None}
    if calls := message.get("tool_calls"):
        reply |= {"content": message["content"] or None, "tool_calls": calls}
    return reply


def chat_logprobs(chat: ChatTokens, ids: Sequence[int], logprobs: Sequence[float]) -> Json:
    entries = []
    for token_id, logprob in zip(ids, logprobs, strict=True):
        token = chat.spell([token_id])
        # A token may hold part of a character: then it has no text of its own, and no bytes to report.
        raw = None if "\ufffd" in token else list(token.encode())
        entries.append({"token": token, "logprob": _finite(logprob), "bytes": raw, "top_logprobs": []})
    return {"content": entries, "refusal": None}


def completion_logprobs(chat: ChatTokens, ids: Sequence[int], logprobs: Sequence[float], offset: int = 0) -> Json:
    tokens = [chat.spell([token_id]) for token_id in ids]
    offsets = list(accumulate(map(len, tokens), initial=offset))[:-1]
    return {"tokens": tokens, "token_logprobs": [*map(_finite, logprobs)], "top_logprobs": None, "text_offset": offsets}


def _finite(logprob: float) -> float:
    """JSON has no infinity and no NaN; the API writes an impossible token this way."""
    return logprob if logprob > -9999.0 else -9999.0
