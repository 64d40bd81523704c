"""The exact ids of a conversation so far: what was observed and what the model said, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmax.envs.types import ChatMessage, Messages, ToolDefinition
from benchmax.inference.tokens.chat import ChatTokens


@dataclass(slots=True)
class TokenDialogue:
    """Grows by one turn of the model at a time, together with the messages before it."""

    chat: ChatTokens
    tools: tuple[ToolDefinition, ...] = ()
    ids: list[int] = field(default_factory=list)
    messages: Messages = field(default_factory=list)
    _prompt_turns: int = 0

    def observe(self, new: Sequence[ChatMessage]) -> list[int]:
        """Ids of the new messages, up to where the assistant's turn begins; the dialogue does not change."""
        if not self.messages:
            return self.chat.prompt(new, self.tools)
        stopped = self.chat.ends_turn(self.ids)
        return self.chat.delta(self.messages, new, self.tools, prompt_turns=self._prompt_turns, stopped=stopped)

    def add(self, new: Sequence[ChatMessage], observed: list[int], message: ChatMessage, said: list[int]) -> None:
        """Append the new messages, which have the ids `observed`, and the turn that follows them."""
        if not self.messages:
            self._prompt_turns = len(new)
        self.messages += [*new, message]
        self.ids += observed + said
