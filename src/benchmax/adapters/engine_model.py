"""An outside trainer's engine behind our model port: token ids in, token ids out.

An adapter provides one async function that samples what follows some ids. Prompts, deltas between turns, tool calls and
log-probs are those of every other model here (`TokenModel`). What the engine raises ends the one rollout that asked, as
a `model_error` or `context_exceeded`; its siblings go on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmax.envs.types import ToolDefinition
from benchmax.errors import BenchmaxError, ContextExceeded, ModelProtocolError, ModelUnavailable, describe_error
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.tokens.token_model import Sampled, StopStrings, TokenConversation, TokenModel
from benchmax.models.base import Sampling
from benchmax.models.http_errors import TOO_LONG
from benchmax.rollouts.record import new_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What an engine sampled for one turn."""

    ids: Sequence[int]
    logprobs: Sequence[float | None] | None
    """One per id, or None when the engine reports none."""
    finish: Literal["stop", "length"] = "stop"


@dataclass(frozen=True, slots=True)
class Ask:
    """What an engine is asked for."""

    prompt: list[int]
    sampling: Sampling
    """With `max_tokens` set to what still fits."""
    session: str
    """The same for all turns of one conversation: an engine can keep its keys and values."""


Sample = Callable[[Ask], Awaitable[Drawn]]
EndSession = Callable[[str], Awaitable[None]]
"""Called with a session that no turn will follow in."""


class EngineModel(TokenModel):
    """A model that an outside trainer's engine runs."""

    def __init__(
        self,
        chat: ChatTokens,
        sample: Sample,
        *,
        name: str,
        context: int | None = None,
        max_response: int | None = None,
        end_session: EndSession | None = None,
    ) -> None:
        super().__init__(chat, name=name, context=context)
        self._sample, self.end_session = sample, end_session
        self.finished = 0
        """Conversations that have ended."""
        self.max_response = max_response
        """Most tokens after the first prompt, tool output included; no limit of its own when None."""

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> TokenConversation:
        return _EngineConversation(self, tuple(tools), sampling)

    async def complete(self, prompt: Sequence[int], sampling: Sampling = Sampling()) -> Sampled:
        return await self.ask(Ask(list(prompt), sampling, new_id()), self.room(prompt))

    async def ask(self, ask: Ask, room: int) -> Sampled:
        """Sample at most `room` tokens; whatever the engine raises becomes a ModelError."""
        most = room if ask.sampling.max_tokens is None else max(1, min(ask.sampling.max_tokens, room))
        ask = replace(ask, sampling=ask.sampling.with_seed(ask.sampling.seed, most))
        try:
            drawn = await self._sample(ask)
        except BenchmaxError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        return self._sampled(drawn, ask.sampling)

    def _failure(self, error: Exception) -> BenchmaxError:
        text = describe_error(error)
        if TOO_LONG.search(text):
            return ContextExceeded(f"The engine of {self.name} says: {text}. Shorten the prompt or the tool output.")
        return ModelUnavailable(f"The engine of {self.name} failed: {text}. See the trainer's log.")

    def _sampled(self, drawn: Drawn, sampling: Sampling) -> Sampled:
        ids = [int(token) for token in drawn.ids]
        if not ids:
            raise ModelProtocolError(f"The engine of {self.name} returned no token. See the trainer's log.")
        logprobs = [math.nan if each is None else float(each) for each in drawn.logprobs or ()]
        if logprobs and len(logprobs) != len(ids):
            raise ModelProtocolError(
                f"The engine of {self.name} returned {len(logprobs)} log-probs for {len(ids)} tokens. "
                "Have it report one for each."
            )
        text = self.chat.decode(ids)
        cut = StopStrings(self.chat, sampling.stop).cut(text) if sampling.stop else text
        return Sampled(ids, logprobs, cut, drawn.finish)


class _EngineConversation(TokenConversation):
    """Knows where its prompt ends, and keeps one session."""

    model: EngineModel

    def __init__(self, model: EngineModel, tools: tuple[ToolDefinition, ...], sampling: Sampling) -> None:
        super().__init__(model, tools, sampling)
        self._session = new_id()
        self._first = 0

    async def _complete(self, prompt: list[int], sampling: Sampling) -> Sampled:
        self._first = self._first or len(prompt)
        room = self.model.room(prompt)
        if self.model.max_response is not None:
            room = min(room, self._room_in_response(prompt, self.model.max_response))
        return await self.model.ask(Ask(prompt, sampling, self._session), room)

    async def aclose(self) -> None:
        self.model.finished += 1
        if self.model.end_session:
            try:
                await self.model.end_session(self._session)
            except Exception as error:  # the rollout is over, whatever becomes of the engine
                logger.warning("A session of %s could not be ended: %s", self.model.name, describe_error(error))

    def _room_in_response(self, prompt: list[int], most: int) -> int:
        room = most - (len(prompt) - self._first)
        if room < 1:
            raise ContextExceeded(
                f"Turns and tool output have {most - room} tokens; the trainer takes {most}. Raise its limit of the "
                "response's length, or shorten the tool output."
            )
        return room
