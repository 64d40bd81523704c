"""Forced decoding: a model that says given turns, in the very tokens the trained model would have sampled.

A demonstration played by it through the environment's own rollout loop leaves a record like any other: the prompt of
the rollouts, the tools' results as observed, every assistant turn as sampled, with the end of turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmax.envs.demonstration import Turn
from benchmax.envs.types import ChatMessage, ToolDefinition
from benchmax.inference.tokens.chat import ChatTokens, parse_reply
from benchmax.inference.tokens.dialogue import TokenDialogue
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling, TokenSegment, Usage
from benchmax.models.text_tools import as_text, plain_text
from benchmax.trainer.learning.batch import TokenSequence, sequence_of_segments


@dataclass(slots=True)
class ForcedDialogue(TokenDialogue):
    """A conversation in which the assistant's turns are given."""

    segments: list[TokenSegment] = field(default_factory=list)

    def say(self, new: Sequence[ChatMessage], text: str) -> ChatMessage:
        """Take in the new messages and the assistant's turn; returns the turn as a message."""
        observed, said = self.observe(new), [*self.chat.encode(text), *self.chat.end_of_turn]
        message = parse_reply(text, tools=bool(self.tools), salt=len(self.ids) + len(observed))
        self.add(new, observed, message, said)
        self.segments += [TokenSegment(observed, sampled=False), TokenSegment(said, sampled=True)]
        return message


class ForcedModel(ModelClient):
    """Says the same turns in every conversation."""

    def __init__(self, chat: ChatTokens, turns: Sequence[Turn], *, name: str = "demonstration") -> None:
        self.name = name
        self._chat = chat
        self._texts = [turn_text(turn) for turn in turns]

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        return _ForcedConversation(ForcedDialogue(self._chat, tuple(tools)), self._texts)


class _ForcedConversation(Conversation):
    def __init__(self, dialogue: ForcedDialogue, texts: Sequence[str]) -> None:
        self._dialogue, self._texts, self._turn = dialogue, texts, 0

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        dialogue = self._dialogue
        message = dialogue.say(new, self._texts[min(self._turn, len(self._texts) - 1)])
        self._turn += 1
        observed, said = dialogue.segments[-2:]
        return Reply(
            message=message,
            finish="tool_calls" if message.get("tool_calls") else "stop",
            usage=Usage(len(dialogue.ids) - len(said.ids), len(said.ids)),
            segments=[observed, said],
        )


def turn_text(turn: Turn) -> str:
    """A turn as the model writes it, with tool calls as text."""
    if isinstance(turn, str):
        return turn
    if isinstance(turn, tuple):
        calls = [replace(call, id=call.id or "call").to_dict() for call in turn]
        turn = {"role": "assistant", "content": "", "tool_calls": calls}
    (message,) = as_text([turn])
    return plain_text(message.get("content"))


def demonstration_sequence(segments: Sequence[TokenSegment]) -> TokenSequence:
    """The tokens of a demonstration: those of the assistant's turns are targets, without the sampler's log-probs."""
    unknown = [replace(segment, logprobs=None) for segment in segments]
    return sequence_of_segments(unknown, advantage=1.0)
