"""A model that takes token ids and returns token ids, behind the model port.

Subclasses implement `complete`, over whatever samples: the engine in this process, or an outside trainer's. All else is
here, once, so that every one of them sees the same prompt, the same deltas and the same log-probs.

A conversation keeps the ids it was given and the ids that were sampled, one after the other, and asks to go on from
there. A reply's segments are those very ids. A turn that failed changes nothing, so it can be repeated.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchmax.envs.types import ChatMessage, Messages, ToolDefinition
from benchmax.errors import ContextExceeded
from benchmax.inference.tokens.chat import ChatTokens, parse_reply
from benchmax.models.base import Conversation, FinishReason, ModelClient, Reply, Sampling, TokenSegment, Usage
from benchmax.models.chat_api import turn_cap


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was drawn, and its text up to a stop string."""

    ids: list[int]
    logprobs: list[float]
    text: str
    finish: Literal["stop", "length"]


@dataclass(slots=True)
class TokenDialogue:
    """The exact ids of a conversation so far: what was observed and what the model said, one after the other."""

    chat: ChatTokens
    tools: tuple[ToolDefinition, ...] = ()
    messages: Messages = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    segments: list[TokenSegment] = field(default_factory=list)
    """The same ids by turns: an observed segment and a sampled one for each turn of the model."""
    _prompt_turns: int = 0

    @property
    def turns(self) -> int:
        """How many turns the model has had."""
        return len(self.segments) // 2

    def observe(self, new: Sequence[ChatMessage]) -> list[int]:
        """Ids of the new messages, up to where the assistant's turn begins; the dialogue does not change."""
        if not self.messages:
            return self.chat.prompt(new, self.tools)
        stopped = self.chat.ends_turn(self.ids)
        return self.chat.delta(self.messages, new, self.tools, prompt_turns=self._prompt_turns, stopped=stopped)

    def add(self, new: Sequence[ChatMessage], observed: list[int], drawn: Sampled) -> Reply:
        """Append the new messages, which have the ids `observed`, and the turn that follows them."""
        if not self.messages:
            self._prompt_turns = len(new)
        usage = Usage(len(self.ids) + len(observed), len(drawn.ids))
        message = parse_reply(drawn.text, tools=bool(self.tools), salt=usage.prompt_tokens)
        turn = [TokenSegment(observed, sampled=False), TokenSegment(drawn.ids, True, drawn.logprobs or None)]
        self.messages += [*new, message]
        self.ids += observed + drawn.ids
        self.segments += turn
        return Reply(message, finish_reason(drawn, message), usage, turn)

    def say(self, new: Sequence[ChatMessage], text: str, *, ended: bool = True) -> Reply:
        """Append the new messages and a given turn, in the tokens the model would have sampled."""
        said = [*self.chat.encode(text), *(self.chat.end_of_turn if ended else ())]
        return self.add(new, self.observe(new), Sampled(said, [], text, "stop"))


class TokenModel(ModelClient):
    """A model that works on token ids."""

    def __init__(self, chat: ChatTokens, *, name: str, context: int | None = None) -> None:
        self.chat = chat
        self.name = name
        self.context = chat.context if context is None else context
        """Most tokens of a conversation, the reply included."""

    @abstractmethod
    async def complete(self, prompt: Sequence[int], sampling: Sampling = Sampling()) -> Sampled:
        """Sample what follows the ids of `prompt`."""

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> TokenConversation:
        return TokenConversation(self, tuple(tools), sampling)

    def room(self, prompt: Sequence[int]) -> int:
        """How many tokens a reply to `prompt` may have; raises ContextExceeded where there is none for it."""
        room = self.context - len(prompt)
        if room < 1:
            raise ContextExceeded(
                f"The conversation has {len(prompt)} tokens; {self.name} takes {self.context} with its reply. "
                "Shorten the prompt or the tool output."
            )
        return room


class TokenConversation(Conversation):
    """A conversation with such a model."""

    def __init__(self, model: TokenModel, tools: tuple[ToolDefinition, ...], sampling: Sampling) -> None:
        self.model, self.sampling = model, sampling
        self.dialogue = TokenDialogue(model.chat, tools)

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        observed = self.dialogue.observe(new)
        prompt = self.dialogue.ids + observed
        seed, most = self.sampling.seed, turn_cap(self.sampling, max_tokens)
        seed = None if seed is None else derive_seed(seed, self.dialogue.turns)
        drawn = await self._complete(prompt, self.sampling.with_seed(seed, most))
        return self.dialogue.add(new, observed, drawn)

    async def _complete(self, prompt: list[int], sampling: Sampling) -> Sampled:
        return await self.model.complete(prompt, sampling)


class StopStrings:
    """Watches sampled ids for texts that end a turn."""

    def __init__(self, chat: ChatTokens, stops: Sequence[str]) -> None:
        self._chat = chat
        self._stops = tuple(stop for stop in stops if stop)
        # A character takes at most four tokens (its bytes), and a stop string may begin inside one.
        self._window = 4 * max(map(len, self._stops), default=0) + 4

    def __call__(self, ids: Sequence[int]) -> bool:
        tail = self._chat.decode(ids[-self._window :])
        return any(stop in tail for stop in self._stops)

    def cut(self, text: str) -> str:
        """The text before the first stop string."""
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        return text[: min(found)] if found else text


def finish_reason(drawn: Sampled, message: ChatMessage) -> FinishReason:
    if drawn.finish == "length":
        return "length"
    return "tool_calls" if message.get("tool_calls") else "stop"


def derive_seed(seed: int, *path: int) -> int:
    """A seed of its own for each turn or choice."""
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
