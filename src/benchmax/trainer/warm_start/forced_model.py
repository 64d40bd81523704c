"""Forced decoding: a model that says given turns, in the very tokens the trained model would have sampled.

A demonstration played by it through the environment's own rollout loop leaves a record like any other: the prompt of
the rollouts, the tools' results as observed, every assistant turn as sampled, with the end of turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmax.envs.demonstration import Turn
from benchmax.envs.types import ChatMessage, ToolDefinition
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import TokenDialogue
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling, TokenSegment
from benchmax.models.text_tools import as_text, plain_text
from benchmax.trainer.learning.batch import TokenSequence, sequence_of_segments


class ForcedModel(ModelClient):
    """Says the same turns in every conversation."""

    name = "demonstration"

    def __init__(self, chat: ChatTokens, turns: Sequence[Turn]) -> None:
        self._chat = chat
        self._texts = [turn_text(turn) for turn in turns]

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        return _ForcedConversation(TokenDialogue(self._chat, tuple(tools)), self._texts)


class _ForcedConversation(Conversation):
    def __init__(self, dialogue: TokenDialogue, texts: Sequence[str]) -> None:
        self._dialogue, self._texts = dialogue, texts

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        return self._dialogue.say(new, self._texts[min(self._dialogue.turns, len(self._texts) - 1)])


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
