"""A model that says what it is told to, in the very tokens the trained model would have sampled.

A demonstration played by it through the environment's own rollout loop leaves a record like any other: the prompt of
the rollouts, the tools' results as observed, every assistant turn as sampled, with the end of turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmax.envs.demonstration import Turn
from benchmax.envs.types import ChatMessage, Messages, ToolCall, ToolDefinition
from benchmax.inference.tokens.chat import ChatTokens, parse_reply
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling, TokenSegment, Usage
from benchmax.models.text_tools import as_text, plain_text
from benchmax.trainer.learning.batch import TokenSequence


@dataclass(slots=True)
class Speech:
    """The exact ids of a conversation in which the assistant is told what to say."""

    chat: ChatTokens
    tools: tuple[ToolDefinition, ...] = ()
    ids: list[int] = field(default_factory=list)
    messages: Messages = field(default_factory=list)
    segments: list[TokenSegment] = field(default_factory=list)
    _prompt_turns: int = 0

    def say(self, new: Sequence[ChatMessage], text: str) -> ChatMessage:
        """Take in the new messages and speak, to the end of the turn; the turn as a message."""
        observed = self._observe(new)
        said = [*self.chat.encode(text), *self.chat.end_of_turn]
        message = parse_reply(text, tools=bool(self.tools), salt=len(self.ids) + len(observed))
        if not self.messages:
            self._prompt_turns = len(new)
        self.messages += [*new, message]
        self.ids += observed + said
        self.segments += [TokenSegment(observed, sampled=False), TokenSegment(said, sampled=True)]
        return message

    def _observe(self, new: Sequence[ChatMessage]) -> list[int]:
        if not self.messages:
            return self.chat.prompt(new, self.tools)
        return self.chat.delta(
            self.messages, new, self.tools, prompt_turns=self._prompt_turns, stopped=self.chat.ends_turn(self.ids)
        )


class SpokenModel(ModelClient):
    """Says the turns of one script in every conversation."""

    def __init__(self, chat: ChatTokens, turns: Sequence[Turn], *, name: str = "demonstration") -> None:
        self.name = name
        self._chat = chat
        self._texts = [turn_text(turn) for turn in turns]

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        return _Spoken(Speech(self._chat, tuple(tools)), self._texts)


class _Spoken(Conversation):
    def __init__(self, speech: Speech, texts: Sequence[str]) -> None:
        self._speech = speech
        self._texts = texts
        self._turn = 0

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        speech = self._speech
        message = speech.say(new, self._texts[min(self._turn, len(self._texts) - 1)])
        self._turn += 1
        observed, said = speech.segments[-2:]
        return Reply(
            message=message,
            finish="tool_calls" if message.get("tool_calls") else "stop",
            usage=Usage(len(speech.ids) - len(said.ids), len(said.ids)),
            segments=[observed, said],
        )


def turn_text(turn: Turn) -> str:
    """A turn as the model writes it: calls stand in its text."""
    if isinstance(turn, str):
        return turn
    message: ChatMessage = (
        {"role": "assistant", "content": "", "tool_calls": [_named(call).to_dict() for call in turn]}
        if isinstance(turn, tuple)
        else turn
    )
    (spoken,) = as_text([message])
    return plain_text(spoken.get("content"))


def _named(call: ToolCall) -> ToolCall:
    return call if call.id else ToolCall(call.name, call.arguments, "call")


def lesson_sequence(segments: Sequence[TokenSegment]) -> TokenSequence:
    """All tokens, those that were said as targets."""
    ids: list[int] = []
    targets: list[int] = []
    for segment in segments:
        if segment.sampled:
            targets += range(len(ids), len(ids) + len(segment.ids))
        ids += segment.ids
    return TokenSequence(
        np.asarray(ids, np.int64),
        np.asarray(targets, np.int64),
        np.full(len(targets), np.nan, np.float32),
        advantage=1.0,
    )
