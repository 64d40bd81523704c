"""Renders a conversation once for all samples of it: with short answers that is most of a trainer's host work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmax.envs.types import ChatMessage, Messages, ToolDefinition
from benchmax.inference.tokens.chat import ChatTokens

PROMPTS_KEPT = 4_096


class CachedChatTokens(ChatTokens):
    """Remembers the ids of rendered conversations, by their messages and tools: those alone decide them."""

    def _adopt(self, tokenizer: Any, whose: str, config: Mapping[str, Any], generation: Mapping[str, Any]) -> None:
        self._rendered: dict[bytes, list[int]] = {}
        self._described: tuple[Sequence[ToolDefinition], str] = ((), "")
        super()._adopt(tokenizer, whose, config, generation)

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition] = ()) -> list[int]:
        return self._once(("prompt", messages), tools, lambda: super(CachedChatTokens, self).prompt(messages, tools))

    def after_turn(self, shaped: Messages, tools: Sequence[ToolDefinition]) -> list[int]:
        return self._once(("turn", shaped), tools, lambda: super(CachedChatTokens, self).after_turn(shaped, tools))

    def _once(self, what: object, tools: Sequence[ToolDefinition], render: Callable[[], list[int]]) -> list[int]:
        text = f"{what!r}{self._describe(tools)}"
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._rendered:
            if len(self._rendered) >= PROMPTS_KEPT:
                self._rendered.clear()
            self._rendered[key] = render()
        return list(self._rendered[key])

    def _describe(self, tools: Sequence[ToolDefinition]) -> str:
        """The tools as text; as a rule they are those of the last call."""
        if self._described[0] is not tools:
            self._described = tools, repr([(tool.name, tool.description, tool.input_schema) for tool in tools])
        return self._described[1]
