"""An environment for SkyRL's own generator: the light way, in which SkyRL keeps the tokens.

    register("MathEnv", MathEnvLocal)

SkyRL calls `init`, `step` and `close` of one object per rollout, from threads; a `PushedRollout` is behind it.

What SkyRL cannot express is left out: rewards of a group, and "unscored", which it takes for a reward of 0 (the metric
`unscored` counts it). A conversation that outgrows `generator.max_input_length` is given up by SkyRL, which calls no
further step: it goes without a reward, too (the metric `context_exceeded`). `generator` has all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.example_rows import carried
from benchmax.adapters.pushed_rollout import PushedRollout, group_reward_warning
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import Messages
from benchmax.models.text_tools import as_text
from benchmax.rollouts.record import Termination
from benchmax.rollouts.settings import RolloutSettings

logger = logging.getLogger(__name__)


class TextEnv:
    """One rollout, as SkyRL holds it; `text_env_class` makes it one of SkyRL's `BaseTextEnv`."""

    def __init__(self, session: EnvSession, extras: Mapping[str, Any], settings: RolloutSettings) -> None:
        self._extras = extras
        turns = extras.get("max_turns")
        self._settings = replace(settings, max_turns=turns) if turns else settings
        self._played = PushedRollout(session, "skyrl")
        self._begun, self._turns, self._tool_calls = False, 0, 0

    def init(self, prompt: Messages) -> tuple[Messages, dict[str, Any]]:
        """Begin the rollout; the prompt, which has the tools in its system message, stays as it is."""
        example = carried({key: value for key, value in self._extras.items() if key != "max_turns"}, prompt)
        self._played.begin(example, self._settings)
        self._begun = True
        return prompt, {}

    def step(self, action: str) -> dict[str, Any]:
        """One turn of the model: its tools' answers, or the reward when it was the last."""
        observed = self._played.turn(action)
        if observed is not None:
            self._turns += 1
            self._tool_calls += len(observed)
            return {"observations": as_text(observed), "reward": 0.0, "done": False, "metadata": {}}
        rollout = self._played.finished()
        metadata = {"termination": rollout.termination.value, "unscored": dict(rollout.unscored)}
        return {"observations": [], "reward": rollout.reward or 0.0, "done": True, "metadata": metadata}

    def close(self) -> None:
        """Release the rollout, also one that SkyRL gave up."""
        self._played.give_up()

    def get_metrics(self) -> dict[str, Any]:
        """The components of the reward, and how the rollout ended."""
        if not self._begun:
            return {}
        rollout = self._played.result()
        if rollout is None:  # SkyRL asks before the end when there is no room for another turn, and only then
            return {"unscored": 1.0, "context_exceeded": 1.0, "turns": self._turns, "tool_calls": self._tool_calls}
        full = rollout.termination is Termination.CONTEXT_EXCEEDED
        ended = {"unscored": float(rollout.reward is None), "context_exceeded": float(full), "turns": rollout.turns}
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
    if warning := group_reward_warning(session):
        logger.warning("%s", warning)
    skyrl_gym.register(id=env_class, entry_point=text_env_class(session, settings))
    return session
