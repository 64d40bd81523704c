"""What is sampled at once, and by which settings. Evaluations need no more of a run, and no torch."""

from __future__ import annotations

from dataclasses import dataclass

from benchmax.models.base import Sampling
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import TrainConfig


@dataclass(frozen=True, slots=True)
class Draw:
    """What to sample."""

    split: str
    step: int
    group_size: int
    temperature: float


def rollout_settings(config: TrainConfig, draw: Draw) -> RolloutSettings:
    """The run's settings as those of one rollout."""
    rollouts = config.rollouts
    return RolloutSettings(
        max_turns=rollouts.max_turns,
        max_tool_calls=rollouts.max_tool_calls,
        max_tokens=rollouts.max_tokens,
        max_seconds=rollouts.timeout,
        tool_seconds=rollouts.tool_seconds,
        reward_seconds=rollouts.reward_seconds,
        weights=rollouts.weights,
        sampling=Sampling(
            temperature=draw.temperature,
            top_p=rollouts.top_p if draw.temperature else 1.0,
            max_tokens=rollouts.max_new_tokens,
            seed=config.seed,
            logprobs=True,
        ),
    )
