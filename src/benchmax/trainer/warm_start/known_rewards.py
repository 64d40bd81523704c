"""What good and bad answers earn in an environment, and how probable the good ones are to a model."""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.doctor.learning_signal import Known
from benchmax.envs.types import Example
from benchmax.inference.local_model import LocalModel
from benchmax.models.base import Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.warm_start.solutions import Solver

MOST_BYTES = 6 << 30
"""The largest model that is loaded a second time to compute probabilities."""


async def known_to(model: LocalModel, host: EnvHost, examples: Sequence[Example]) -> dict[str, Known]:
    """What good, lazy and senseless answers earn, and how probable the good ones are to an untrained model."""
    settings = RolloutSettings(sampling=Sampling(max_tokens=None))

    def mean_probability(sequences: list[TokenSequence]) -> float | None:
        if sum(file.stat().st_size for file in model.chat.directory.glob("*.safetensors")) > MOST_BYTES:
            return None
        policy = Policy.from_directory(model.chat.directory, tune="full", device=str(model.engine.device))
        return Learner(policy, TrainConfig()).mean_probability(sequences)

    return await Solver(host, model.chat, settings, examples).known(mean_probability)
