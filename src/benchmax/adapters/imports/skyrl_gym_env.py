"""`skyrl_gym:ID`: a text environment of skyrl-gym as a benchmax one. Its rows are SkyRL's, given with --data.

An environment of one turn scores the model's answer. One of several turns (`skyrl_gym:ID?multi_turn=true`) is acted in
with the tool `act`, whose text is the action; the final answer is the last action, if the episode is not over by then.
The reward is the sum over all steps. skyrl-gym is not asynchronous: each step runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmax.adapters.imports.addresses import class_name, id_and_settings, need
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import Example, Messages, ToolDefinition
from benchmax.errors import ToolError

PIN = "skyrl-gym==0.4.0"
ACT = ToolDefinition(
    "act",
    "Send a message to the environment and read what it answers.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


@dataclass
class _Episode:
    env: Any
    reward: float = 0.0
    done: bool = False


class SkyRLGymEnv(BaseEnv):
    """A text environment of skyrl-gym."""

    env_id: ClassVar[str] = ""
    multi_turn: ClassVar[bool] = False
    PRIMARY_REWARD_KEY = "reward"

    def __init__(self, env_config: Mapping[str, Any] | None = None, **more: Any) -> None:
        """`env_config` is what SkyRL's configuration has for the environment."""
        super().__init__(**more)
        self._config = dict(env_config or {})
        self._episodes: dict[str, _Episode] = {}

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        extras = {name: value for name, value in row.items() if name != "prompt"}
        args = {"prompt": list(row["prompt"]), "extras": extras}
        return make_example(prompt_messages=list(row["prompt"]), task=row, init_rollout_args=args)

    async def list_tools(self) -> list[ToolDefinition]:
        return [ACT] if self.multi_turn else []

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        self._episodes[rollout_id] = await asyncio.to_thread(self._open, **rollout_args)

    def _open(self, prompt: Messages, extras: dict[str, Any]) -> _Episode:
        import skyrl_gym
        from omegaconf import OmegaConf

        made = skyrl_gym.make(self.env_id, env_config=OmegaConf.create(self._config), extras=extras)
        made.init(prompt)
        return _Episode(made)

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> str:
        episode = self._episodes[rollout_id]
        if episode.done:
            raise ToolError("The episode is over. Give the final answer.")
        return await asyncio.to_thread(_step, episode, tool_args["text"])

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        episode = self._episodes[rollout_id]
        if not episode.done:
            await asyncio.to_thread(_step, episode, _answer(messages))
        return {"reward": episode.reward}

    async def release_rollout(self, rollout_id: str) -> None:
        if episode := self._episodes.pop(rollout_id, None):
            await asyncio.to_thread(episode.env.close)


def _step(episode: _Episode, action: str) -> str:
    """One action; returns what the environment answers."""
    output = episode.env.step(action)
    episode.reward += float(output["reward"])
    episode.done = bool(output["done"])
    said = "\n".join(str(message["content"]) for message in output["observations"])
    return f"{said}\nThe episode is over.".strip() if episode.done else said


def _answer(messages: Messages) -> str:
    """The model's last turn."""
    said = [message for message in messages if message["role"] == "assistant"]
    return content_text(said[-1].get("content")) if said else ""


def environment(address: str) -> type[BaseEnv]:
    """The class for `skyrl_gym:ADDRESS`."""
    need(PIN)
    env_id, settings = id_and_settings("skyrl_gym", address)
    members = {"env_id": env_id, "multi_turn": bool(settings.get("multi_turn")), "__module__": __name__}
    return type(class_name("skyrl", "gym", env_id), (SkyRLGymEnv,), members)
