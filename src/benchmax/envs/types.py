"""The types of an environment's inputs and outputs: messages, tool calls, examples, results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


class ToolCallFunction(TypedDict):
    name: str
    arguments: str


class ToolCallDict(TypedDict):
    """A tool call as the OpenAI API writes it."""

    id: str
    type: Literal["function"]
    function: ToolCallFunction


class ChatMessage(TypedDict, total=False):
    """One turn of a conversation; only `role` is required."""

    role: Required[str]
    content: Any
    tool_calls: list[ToolCallDict]
    tool_call_id: str
    name: str


Messages: TypeAlias = list[ChatMessage]
Completion: TypeAlias = list[dict[str, Any]]
"""A transcript in the older style."""


class EarlierState:
    """Opens instances that were pickled as a list of their fields, as those of earlier versions, which had slots."""

    def __setstate__(self, state: dict[str, Any] | list[Any]) -> None:
        self.__dict__.update(state if isinstance(state, dict) else zip(self.__match_args__, state, strict=True))

    __match_args__: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolCall(EarlierState):
    """A tool the model wants to run; `arguments` is the JSON text it wrote. No slots, as in `ToolDefinition`."""

    name: str
    arguments: str = "{}"
    id: str | None = None

    def to_dict(self) -> ToolCallDict:
        return {"id": self.id or "", "type": "function", "function": {"name": self.name, "arguments": self.arguments}}

    def arguments_dict(self) -> dict[str, Any]:
        """The parsed arguments, or {} when they are not a JSON object."""
        try:
            parsed = json.loads(self.arguments)
        except (ValueError, TypeError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ToolCall:
        """Read the nested OpenAI form or the flat `{name, arguments, id}` form."""
        function = raw.get("function")
        body: Mapping[str, Any] = function if type(function) is dict or isinstance(function, Mapping) else raw
        arguments = body.get("arguments", "{}")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments)
        call_id = raw.get("id")
        return cls(str(body.get("name") or ""), arguments, str(call_id) if call_id else None)


@dataclass
class ToolDefinition:
    """A tool as the model sees it: a name, what it does, and a JSON schema of its arguments.

    It has no slots: published clients pickle instances as a dict of attributes, which a slotted class cannot take.
    """

    name: str
    description: str
    input_schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool may return instead of plain text, to mark a failure or add images."""

    text: str
    is_error: bool = False
    parts: tuple[dict[str, Any], ...] = ()
    """OpenAI content parts (`{"type": "image_url", …}`), shown after the text."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """A reward component that could not be scored. It is not 0: the sample is left out of the baseline."""

    reason: str


RewardValue: TypeAlias = "float | Unscored"


class Example(TypedDict):
    """One task for the model. `id` depends on the prompt and the task alone."""

    id: str
    prompt_messages: Messages
    task: NotRequired[dict[str, Any] | None]
    init_rollout_args: NotRequired[dict[str, Any] | None]


class StandardizedExample(TypedDict, total=False):
    """An example in the older style; other keys reach the reward as keyword arguments."""

    prompt: Required[str | list[dict[str, Any]]]
    ground_truth: Any
    init_rollout_args: dict[str, Any] | None


class Transcript(list[ChatMessage]):
    """A list of messages that knows where the prompt ends and the model's completion starts.

    Rewards receive one. It is a plain list in every other way; a copy or a slice of it is
    an ordinary list.
    """

    __slots__ = ("completion_start",)

    def __init__(self, messages: Iterable[ChatMessage] = (), completion_start: int | None = None) -> None:
        super().__init__(messages)
        self.completion_start = len(self) if completion_start is None else completion_start

    @property
    def prompt(self) -> Messages:
        """The turns the model was given."""
        return self[: self.completion_start]

    @property
    def completion(self) -> Messages:
        """The turns the model and its tools produced."""
        return self[self.completion_start :]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self.completion_start)


def nest_tool_calls(message: ChatMessage) -> ChatMessage:
    """The message with its tool calls in the nested OpenAI form (itself when they already are)."""
    calls = message.get("tool_calls")
    if not calls or all("function" in call for call in calls):
        return message
    return {**message, "tool_calls": [ToolCall.from_dict(call).to_dict() for call in calls]}
