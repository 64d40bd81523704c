"""A model whose answers are given in advance: for tests, and for measuring everything but the model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from benchmax.envs.types import ChatMessage, ToolCall, ToolDefinition, nest_tool_calls
from benchmax.errors import ConfigError, ModelRejected
from benchmax.models.base import Conversation, FinishReason, ModelClient, Reply, Sampling, Usage
from benchmax.models.chat_api import turn_cap

Answer: TypeAlias = "str | ToolCall | Sequence[ToolCall] | ChatMessage | Reply | Exception"
Script: TypeAlias = "str | Sequence[Answer] | Callable[[list[ChatMessage]], Answer | Awaitable[Answer]]"


class ScriptedModel(ModelClient):
    """Plays `script`.

    A string is every turn's text. A list has one answer for each turn, the last of which repeats. A
    function, plain or async, sees the whole conversation so far (and must not change it). An answer is
    a text, a ToolCall or several, a message, a Reply, or an exception to raise. Words count as tokens.
    """

    def __init__(self, script: Script, *, name: str = "scripted", delay: float = 0.0) -> None:
        if not isinstance(script, str) and not callable(script) and not script:
            raise ConfigError("A script needs at least one answer. Give ScriptedModel a text, a list or a function.")
        self.script = script
        self.name = name
        self.delay = delay

    @classmethod
    def answers(cls, replies: Mapping[str, Answer], *, name: str = "scripted", delay: float = 0.0) -> Self:
        """Answer the last user message by looking its text up in `replies`."""

        def look_up(messages: list[ChatMessage]) -> Answer:
            asked = next((m.get("content") for m in reversed(messages) if m["role"] == "user"), None)
            if isinstance(asked, str) and asked in replies:
                return replies[asked]
            return ModelRejected(f"The script has no answer to {str(asked)[:200]!r}. Add it to the replies.")

        return cls(look_up, name=name, delay=delay)

    def converse(
        self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()
    ) -> ScriptedConversation:
        return ScriptedConversation(self, sampling)

    def __repr__(self) -> str:
        return f"ScriptedModel(name={self.name!r})"


class ScriptedConversation(Conversation):
    def __init__(self, model: ScriptedModel, sampling: Sampling) -> None:
        self._model = model
        self._sampling = sampling
        self.messages: list[ChatMessage] = []
        """Those so far, both sides'."""
        self._turn = 0
        self._calls = 0
        self._tokens = 0

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        before = len(self.messages)
        self.messages.extend(new)
        try:
            answer = await self._answer()
        except BaseException:
            # The turn did not happen: the caller may try again.
            del self.messages[before:]
            raise
        finally:
            self._turn += 1
        reply = answer if isinstance(answer, Reply) else self._reply(answer, turn_cap(self._sampling, max_tokens))
        prompt_tokens = self._tokens + sum(map(_words, new))
        sampled = _words(reply.message)
        if reply is not answer:
            reply.usage = Usage(prompt_tokens, sampled)
        self._tokens = prompt_tokens + sampled
        self.messages.append(reply.message)
        return reply

    async def _answer(self) -> Answer:
        model = self._model
        if model.delay > 0:
            await asyncio.sleep(model.delay)
        script = model.script
        answer: Any
        if isinstance(script, str):
            answer = script
        elif callable(script):
            answer = script(self.messages)
            if inspect.isawaitable(answer):
                answer = await answer
        else:
            answer = script[min(self._turn, len(script) - 1)]
        if isinstance(answer, Exception):
            raise answer.with_traceback(None)
        return answer  # type: ignore[no-any-return]

    def _reply(self, answer: Any, cap: int | None) -> Reply:
        if isinstance(answer, str):
            text, finish = _cut(answer, cap)
            return Reply({"role": "assistant", "content": text}, finish)
        if isinstance(answer, ToolCall):
            answer = [answer]
        if isinstance(answer, Mapping):
            message = nest_tool_calls({"role": "assistant", **answer})  # type: ignore[typeddict-item]
            return Reply(message, "tool_calls" if message.get("tool_calls") else "stop")
        if isinstance(answer, Sequence) and all(isinstance(call, ToolCall) for call in answer):
            calls = [ToolCall(call.name, call.arguments, call.id or self._new_id()).to_dict() for call in answer]
            return Reply({"role": "assistant", "content": "", "tool_calls": calls}, "tool_calls")
        raise ConfigError(
            f"The script answered with {type(answer).__name__}. "
            "Answer with a text, ToolCalls, a message, a Reply or an exception."
        )

    def _new_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"


def _cut(text: str, cap: int | None) -> tuple[str, FinishReason]:
    # A text with fewer characters than allowed words cannot be too long: most need not be split.
    if cap is None or len(text) < cap or len(words := text.split()) <= cap:
        return text, "stop"
    return " ".join(words[:cap]), "length"


def _words(message: ChatMessage) -> int:
    content = message.get("content")
    count = len(content.split()) if isinstance(content, str) else 0
    for call in message.get("tool_calls") or ():
        count += 1 + len(ToolCall.from_dict(call).arguments.split())
    return count
