"""The port behind which every model stands.

A `ModelClient` opens a `Conversation` for each rollout. A conversation receives only the *new*
messages (first the prompt, then tool results and user turns) and returns one assistant turn.
It never sees a rewritten history, so a client that works on tokens only appends:
what was sampled is what is trained on.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, Self, TypeAlias, TypeGuard

from benchmax.envs.types import ChatMessage, ToolDefinition
from benchmax.errors import ConfigError, ModelProtocolError

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a turn is sampled."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int | None = 1024
    """Tokens in one turn."""
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False
    """Ask for the log-probability and id of every sampled token."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields for the server, sent as they are."""

    def __post_init__(self) -> None:
        need_number("Sampling.temperature", self.temperature, at_least=0)
        need_number("Sampling.top_p", self.top_p, above=0, at_most=1)
        need_count("Sampling.top_k", self.top_k, optional=True)
        need_count("Sampling.max_tokens", self.max_tokens, optional=True)
        need_count("Sampling.seed", self.seed, least=None, optional=True)
        if not isinstance(self.stop, tuple | list) or not all(isinstance(text, str) for text in self.stop):
            raise ConfigError(f'Sampling.stop is {self.stop!r}; give a tuple of texts, such as ("END",).')
        if not isinstance(self.extra, dict):
            raise ConfigError(f"Sampling.extra is {self.extra!r}; give a dict of further fields.")

    def with_seed(self, seed: int | None, max_tokens: int | None) -> Sampling:
        """A copy for another turn, without the checks, which would cost time in every rollout and turn."""
        twin = object.__new__(Sampling)
        for name in self.__slots__:
            object.__setattr__(twin, name, getattr(self, name))
        object.__setattr__(twin, "seed", seed)
        object.__setattr__(twin, "max_tokens", max_tokens)
        return twin


def need_number(
    field: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    optional: bool = False,
) -> None:
    """Raise ConfigError for a setting that is not a finite number within its range."""
    if optional and value is None:
        return
    number: Any = math.nan if isinstance(value, bool) or not isinstance(value, Real) else value
    low = (at_least is None or number >= at_least) and (above is None or number > above)
    if not (math.isfinite(number) and low and (at_most is None or number <= at_most)):
        bounds = {"at least": at_least, "above": above, "at most": at_most}
        allowed = " and ".join(f"{name} {bound:g}" for name, bound in bounds.items() if bound is not None)
        raise ConfigError(f"{field} is {value!r}; give a finite number {allowed}".rstrip() + _or_none(optional))


def need_count(field: str, value: object, *, least: int | None = 1, optional: bool = False) -> None:
    """Raise ConfigError for a setting that is not a whole number of at least `least`."""
    if optional and value is None:
        return
    if not is_whole(value) or (least is not None and value < least):
        allowed = "" if least is None else f" of at least {least}"
        raise ConfigError(f"{field} is {value!r}; give a whole number{allowed}" + _or_none(optional))


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, one of numpy's too; true and false are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _or_none(optional: bool) -> str:
    return ", or None." if optional else "."


@dataclass(slots=True)
class Usage:
    """Tokens and money spent."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0

    def add(self, other: Usage) -> None:
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.cost_usd += other.cost_usd


@dataclass(slots=True)
class TokenSegment:
    """A run of exact tokens: sampled by the model, or observed (prompt, tool output) and masked."""

    ids: list[int]
    sampled: bool
    logprobs: list[float] | None = None
    """One per sampled token, under the distribution it was drawn from."""


@dataclass(slots=True)
class Reply:
    """One assistant turn."""

    message: ChatMessage
    finish: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
    segments: list[TokenSegment] = field(default_factory=list)
    """The exact tokens this turn added, in order; empty when the model does not report them."""


_TEXT_OR_PARTS = (str, list, type(None))
_LIST_OR_NONE = (list, tuple, type(None))
"""Types that replies are checked against; a tuple, since `str | list` makes a new object each time it is read."""


def checked_reply(returned: Any) -> Reply:
    """What a model's conversation returned, if it is an assistant turn; ModelProtocolError says what is wrong."""
    if not isinstance(returned, Reply):
        raise ModelProtocolError(f"The model's reply is {reprlib.repr(returned)}. Return a Reply(message=…).")
    message: Any = returned.message
    if not isinstance(message, dict) or message.get("role") != "assistant":
        raise ModelProtocolError(f"The model's message is {reprlib.repr(message)}. Its role must be 'assistant'.")
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, _TEXT_OR_PARTS) or not isinstance(calls, _LIST_OR_NONE):
        raise ModelProtocolError(
            f"The model's message is {reprlib.repr(message)}. Its content must be text, its tool_calls a list."
        )
    return returned


class Conversation(ABC):
    """One rollout's conversation with a model."""

    @abstractmethod
    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        """Append `new` and sample the next assistant turn. `max_tokens` caps this turn below the sampling's."""

    async def aclose(self) -> None:
        """Free what this conversation holds."""


class ModelClient(ABC):
    """A model. Subclasses set `name` and implement `converse`."""

    name: str = "model"

    @abstractmethod
    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        """Open a conversation in which the model may call `tools`."""

    async def aclose(self) -> None:
        """Close connections."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
