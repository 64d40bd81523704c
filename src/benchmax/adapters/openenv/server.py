"""A benchmax environment as an OpenEnv server. OpenEnv's own code listens and keeps the sessions.

uvicorn.run(make_app(MyEnv, rows), port=8000)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmax import limits
from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.openenv import ADAPTER
from benchmax.adapters.openenv.episode import SPLIT, Episode, Stop, Tasks
from benchmax.adapters.pushed_rollout import group_reward_warning
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import make_env
from benchmax.errors import UsageError
from benchmax.rollouts.settings import RolloutSettings

logger = logging.getLogger(__name__)


def make_app(
    env: type[BaseEnv],
    rows: Any,
    *,
    env_args: Mapping[str, Any] | None = None,
    settings: RolloutSettings = RolloutSettings(),
    sessions: int = limits.ROLLOUTS_AT_ONCE,
) -> Any:
    """A FastAPI application with OpenEnv's routes; at most so many sessions at once, each with a rollout of its own."""
    try:
        from openenv.core.env_server.http_server import create_fastapi_app
    except ImportError as missing:
        raise UsageError(f"OpenEnv's package is not installed. Run: pip install '{ADAPTER.pin}'") from missing
    tasks = Tasks(list(load_examples(rows, env)))
    session = EnvSession(partial(make_env, env, dict(env_args or {})))
    if warning := group_reward_warning(session):
        logger.warning("%s", warning)
    action, observation = _messages()
    environment = _environment(env, session, tasks, settings, observation)
    app = create_fastapi_app(environment, action, observation, max_concurrent_envs=sessions, env_name=env.__name__)
    app.state.benchmax_session = session
    return app


def _messages() -> tuple[Any, Any]:
    """OpenEnv's action and observation, in our words."""
    from openenv.core.env_server.types import Action, Observation
    from pydantic import Field

    class BenchmaxAction(Action):  # type: ignore[misc]
        """A turn of the model, or why there is none."""

        text: str = Field("", description="What the model said; calls may stand in it as <tool_call> JSON.")
        tool_calls: list[dict[str, Any]] = Field([], description="Its calls, in OpenAI's form, if they are parsed.")
        stop: Stop | None = Field(None, description="Instead of a turn: why the trainer has no further one.")

    class BenchmaxObservation(Observation):  # type: ignore[misc]
        """What the model is to read next."""

        messages: list[dict[str, Any]] = Field([], description="Messages to add to the conversation.")
        tools: list[dict[str, Any]] = Field([], description="After reset: the tools, in OpenAI's form.")

    return BenchmaxAction, BenchmaxObservation


def _environment(
    env: type[BaseEnv], session: EnvSession, tasks: Tasks, settings: RolloutSettings, observation: Any
) -> Any:
    """OpenEnv's environment: one object for each session."""
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import EnvironmentMetadata, State

    class BenchmaxEnvironment(Environment):  # type: ignore[misc]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._episode = Episode(session, tasks, settings)
            self._id: str | None = None

        def reset(
            self, seed: int | None = None, episode_id: str | None = None, index: int | None = None, **more: Any
        ) -> Any:
            self._id = episode_id
            return observation(**self._episode.reset(index=index, seed=seed))

        def step(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
            if action.stop:
                return observation(**self._episode.stop(action.stop))
            return observation(**self._episode.step(action.text, action.tool_calls))

        @property
        def state(self) -> Any:
            return State(episode_id=self._id, step_count=self._episode.turns, index=self._episode.index)

        def close(self) -> None:
            self._episode.close()

        # What there is to play, for OpenEnv's clients

        def get_metadata(self) -> Any:
            return EnvironmentMetadata(name=env.__name__, description=(env.__doc__ or env.__name__).strip())

        def list_splits(self) -> list[str]:
            return [SPLIT]

        def num_tasks(self, split: str) -> int:
            return len(tasks.examples)

        def get_task(self, split: str, index: int) -> dict[str, Any]:
            return tasks.describe(index)

        def list_tasks(self, split: str) -> list[dict[str, Any]]:
            return self.get_task_range(split)

        def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
            return [tasks.describe(index) for index in range(len(tasks.examples))[start:stop]]

    return BenchmaxEnvironment
