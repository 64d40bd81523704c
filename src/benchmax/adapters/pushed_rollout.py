"""A rollout whose turns come from outside: for trainers that hold the conversation and step an environment.

The rollout itself is ours, played on the environment's session with its tools, budgets and rewards, by a model that
waits for what the trainer sampled. All calls of a turn run; `max_turns` holds. Methods may be called from any thread,
and wait.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from benchmax.adapters.env_session import EnvSession
from benchmax.envs.types import ChatMessage, Example, Messages, ToolDefinition, nest_tool_calls
from benchmax.errors import ModelError
from benchmax.inference.tokens.chat import parse_reply
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings

Action = str | ChatMessage
"""A turn of the model: its text, with calls in it, or its message."""


def group_reward_warning(session: EnvSession) -> str | None:
    """A warning that rewards of a group are not computed here; None for an environment without them."""
    if not session.host.overrides("compute_group_reward"):
        return None
    return (
        f"{session.host.name} scores siblings together (compute_group_reward), and a rollout has none here: that part "
        "of the reward is left out. Return components from compute_reward, or use a trainer's adapter with groups."
    )


class PushedRollout:
    """One rollout; `begin` it once."""

    def __init__(self, session: EnvSession, name: str) -> None:
        self._session = session
        self._model = PushedModel(session.loop, name)
        self._running: Future[Rollout] | None = None
        self._prompt: Messages | None = None

    def begin(self, example: Example, settings: RolloutSettings) -> Messages | None:
        """Start it; returns the messages before the model's first turn, None when it could not begin."""
        patient = replace(settings, model_seconds=settings.max_seconds)  # a turn waits for the trainer's whole batch
        work = run_rollout(self._session.host, example, self._model, patient, split="train")
        self._running = self._session.start(work)
        self._running.add_done_callback(lambda _: self._model.observed.put(None))
        self._prompt = self._model.observed.get()
        return self._prompt

    def turn(self, action: Action) -> Messages | None:
        """One turn of the model; returns what its tools answered, None when it was the last."""
        if self._prompt is None:  # it never began
            return None
        self._model.push(action)
        return self._model.observed.get()

    def stop(self, reason: ModelError) -> None:
        """No turn follows, for this reason, which says how the rollout ends; what there is will be scored."""
        if self._prompt is not None:
            self._model.push(reason)

    def result(self) -> Rollout | None:
        """The record, once it is over; None before, and for one that was given up."""
        if self._running is None or not self._running.done() or self._running.cancelled():
            return None
        return self._running.result()

    def finished(self) -> Rollout:
        """The record; waits for it."""
        assert self._running is not None
        return self._running.result()

    def give_up(self) -> None:
        """Release it, wherever it is."""
        if self._running is not None and not self._running.done():
            self._running.cancel()


class PushedModel(ModelClient):
    """A model whose turns come from outside, for one rollout."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self._loop = loop
        self.actions: asyncio.Queue[Action | ModelError] = asyncio.Queue()
        self.observed: queue.SimpleQueue[Messages | None] = queue.SimpleQueue()
        """The messages before each turn of the model; None when there will be no further turn."""

    def push(self, action: Action | ModelError) -> None:
        """The model's next turn, or why there is none; from any thread."""
        self._loop.call_soon_threadsafe(self.actions.put_nowait, action)

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        return _PushedConversation(self, bool(tools))


class _PushedConversation(Conversation):
    def __init__(self, model: PushedModel, tools: bool) -> None:
        self._model, self._tools, self._turn = model, tools, 0

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        self._model.observed.put(list(new))
        action = await self._model.actions.get()
        if isinstance(action, ModelError):
            raise action
        self._turn += 1
        if isinstance(action, str):
            message = parse_reply(action, tools=self._tools, salt=self._turn)
        else:
            message = nest_tool_calls(action)
        return Reply(message, "tool_calls" if message.get("tool_calls") else "stop")
