"""An environment for SkyRL's own generator: the light way, in which SkyRL keeps the tokens.

    register("MathEnv", MathEnvLocal)

SkyRL calls `init`, `step` and `close` of one object per rollout, from threads. The rollout itself is ours: it is played
on the environment's session, with its tools, budgets and rewards, by a model that waits for what SkyRL sampled. All
calls of a turn run; `max_turns` holds.

What SkyRL cannot express is left out: rewards of a group, and "unscored", which it takes for a reward of 0 (the metric
`unscored` counts it). `generator` has both.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.examples import carried
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ChatMessage, Messages, ToolDefinition
from benchmax.inference.tokens.chat import parse_reply
from benchmax.models.base import Conversation, ModelClient, Reply, Sampling
from benchmax.models.text_tools import as_text
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings


class PushedModel(ModelClient):
    """A model whose turns come from outside, for one rollout."""

    name = "skyrl"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._actions: asyncio.Queue[str] = asyncio.Queue()
        self.observed: queue.SimpleQueue[Messages | None] = queue.SimpleQueue()
        """The messages before each turn of the model; None when there will be no further turn."""

    def push(self, action: str) -> None:
        """The model's next turn; from any thread."""
        self._loop.call_soon_threadsafe(self._actions.put_nowait, action)

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> Conversation:
        return _PushedConversation(self, bool(tools))

    async def next_action(self, new: Sequence[ChatMessage]) -> str:
        self.observed.put(list(new))
        return await self._actions.get()


class _PushedConversation(Conversation):
    def __init__(self, model: PushedModel, tools: bool) -> None:
        self._model, self._tools, self._turn = model, tools, 0

    async def reply(self, new: Sequence[ChatMessage], *, max_tokens: int | None = None) -> Reply:
        action = await self._model.next_action(new)
        self._turn += 1
        message = parse_reply(action, tools=self._tools, salt=self._turn)
        return Reply(message, "tool_calls" if message.get("tool_calls") else "stop")


class TextEnv:
    """One rollout, as SkyRL holds it; `text_env_class` makes it one of SkyRL's `BaseTextEnv`."""

    def __init__(self, session: EnvSession, extras: Mapping[str, Any], settings: RolloutSettings) -> None:
        self._session, self._extras = session, extras
        turns = extras.get("max_turns")
        self._settings = replace(settings, max_turns=turns) if turns else settings
        self._running: Future[Rollout] | None = None

    def init(self, prompt: Messages) -> tuple[Messages, dict[str, Any]]:
        """Begin the rollout; the prompt, which has the tools in its system message, stays as it is."""
        example = carried({key: value for key, value in self._extras.items() if key != "max_turns"}, prompt)
        self._model = PushedModel(self._session.loop)
        work = run_rollout(self._session.host, example, self._model, self._settings, split="train")
        self._running = self._session.start(work)
        self._running.add_done_callback(lambda _: self._model.observed.put(None))
        self._first = self._model.observed.get()
        return prompt, {}

    def step(self, action: str) -> dict[str, Any]:
        """One turn of the model: its tools' answers, or the reward when it was the last."""
        observed: Messages | None = None
        if self._first is not None:  # otherwise the rollout never began
            self._model.push(action)
            observed = self._model.observed.get()
        if observed is not None:
            return {"observations": as_text(observed), "reward": 0.0, "done": False, "metadata": {}}
        rollout = self._rollout()
        metadata = {"termination": rollout.termination.value, "unscored": dict(rollout.unscored)}
        return {"observations": [], "reward": rollout.reward or 0.0, "done": True, "metadata": metadata}

    def _rollout(self) -> Rollout:
        assert self._running is not None
        return self._running.result()

    def close(self) -> None:
        """Release the rollout, also one that SkyRL gave up."""
        if self._running is not None and not self._running.done():
            self._running.cancel()

    def get_metrics(self) -> dict[str, Any]:
        """The components of the reward, and how the rollout ended."""
        if self._running is None or not self._running.done() or self._running.cancelled():
            return {}
        rollout = self._rollout()
        ended = {"unscored": float(rollout.reward is None), "turns": rollout.turns}
        return {**rollout.rewards, **ended, "tool_calls": len(rollout.tool_events)}


def text_env_class(session: EnvSession, settings: RolloutSettings = RolloutSettings()) -> type[Any]:
    """`TextEnv` as a subclass of SkyRL's own, constructed the way that SkyRL does it."""
    from skyrl_gym.envs.base_text_env import BaseTextEnv

    class BenchmaxTextEnv(TextEnv, BaseTextEnv):  # type: ignore[misc]
        def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
            BaseTextEnv.__init__(self)
            TextEnv.__init__(self, session, extras or {}, settings)

    return BenchmaxTextEnv


def register(
    env_class: str, open_env: Callable[[], BaseEnv], *, settings: RolloutSettings = RolloutSettings()
) -> EnvSession:
    """Make an environment known to skyrl_gym under the name that the dataset has in `env_class`.

    Call it inside SkyRL's Ray entry point, where the generator runs. The environment is opened once, for all rollouts.
    """
    import skyrl_gym

    session = EnvSession(open_env)
    skyrl_gym.register(id=env_class, entry_point=text_env_class(session, settings))
    return session
