"""Exact tokens behind an API that only carries text.

A chat API gets the whole history as text with every request, and the tokens it came from cannot be recovered from text.
So the server remembers what it sampled: when a request continues a conversation it answered before, the known ids are
kept and only what is new is rendered. A conversation it does not remember is rendered whole.
"""

from __future__ import annotations

import hashlib
import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from benchmax.envs.types import ChatMessage, ToolCall, ToolDefinition
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.text_tools import plain_text
from benchmax.prompts.tools import mcp2openai

REMEMBERED_TOKENS = 8_000_000
"""Kept at most, four bytes each; the least recently used conversations are dropped first."""


@dataclass(frozen=True, slots=True)
class _Known:
    ids: array[int]
    prompt_turns: int


class ConversationCache:
    """The conversations a server has answered, by their messages and tools. Safe to use from several threads."""

    def __init__(self, chat: ChatTokens) -> None:
        self._chat = chat
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._tokens = 0
        self._lock = threading.Lock()

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition]) -> tuple[list[int], int]:
        """Ids of the conversation, and how many messages its first prompt had."""
        keys = _keys(messages, tools)
        for end in range(len(messages) - 1, 0, -1):
            if messages[end - 1]["role"] != "assistant" or messages[end]["role"] == "assistant":
                continue
            if known := self._find(keys[end - 1]):
                history, new, stopped = messages[:end], messages[end:], self._chat.ends_turn(known.ids)
                turns = known.prompt_turns
                return [*known.ids, *self._chat.delta(history, new, tools, prompt_turns=turns, stopped=stopped)], turns
        return self._chat.prompt(messages, tools), len(messages)

    def _find(self, key: bytes) -> _Known | None:
        with self._lock:
            if known := self._known.get(key):
                self._known.move_to_end(key)
            return known

    def keep(
        self,
        messages: Sequence[ChatMessage],
        reply: ChatMessage,
        tools: Sequence[ToolDefinition],
        ids: Sequence[int],
        prompt_turns: int,
    ) -> None:
        """Remember that `ids` is this conversation with this reply."""
        key = _keys([*messages, reply], tools)[-1]
        with self._lock:
            if old := self._known.pop(key, None):
                self._tokens -= len(old.ids)
            self._known[key] = _Known(array("i", ids), prompt_turns)
            self._tokens += len(ids)
            while self._tokens > REMEMBERED_TOKENS:
                self._tokens -= len(self._known.popitem(last=False)[1].ids)


def _keys(messages: Sequence[ChatMessage], tools: Sequence[ToolDefinition]) -> list[bytes]:
    """A running digest: one key for the conversation up to each message."""
    digest = hashlib.blake2b(json.dumps([mcp2openai(tool) for tool in tools]).encode(), digest_size=16)
    keys = []
    for message in messages:
        calls = [ToolCall.from_dict(call) for call in message.get("tool_calls") or ()]
        said = [message["role"], plain_text(message.get("content")), [[call.name, call.arguments] for call in calls]]
        digest.update(json.dumps(said).encode())
        keys.append(digest.copy().digest())
    return keys
