"""What is known of an environment before a model is trained on it, and how probable its solutions are to that model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmax.doctor.learning_signal import Known
from benchmax.envs.types import Example
from benchmax.inference.local import LocalModel
from benchmax.models.base import Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.warm_start.lessons import Guide

MOST_BYTES = 6 << 30
"""Of a model's files that are loaded a second time to compute probabilities."""


async def known_to(model: LocalModel, host: EnvHost, examples: Sequence[Example]) -> Known:
    """What good, lazy and senseless answers earn, and how probable the good ones are. The model is as it was loaded."""
    settings = RolloutSettings(sampling=Sampling(max_tokens=None))

    def chance(sequences: list[TokenSequence]) -> float | None:
        if weights_of(model.chat.directory) > MOST_BYTES:
            return None
        policy = Policy.from_directory(model.chat.directory, tune="full", device=str(model.engine.device))
        return Learner(policy, TrainConfig()).chance(sequences)

    return await Guide(host, model.chat, settings, examples).known(chance)


def weights_of(directory: Path) -> int:
    """Bytes of a model's weights."""
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))
