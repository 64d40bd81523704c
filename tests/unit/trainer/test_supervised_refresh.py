"""A lesson in the middle of a run changes the weights as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmax.trainer.config import TrainConfig
from benchmax.trainer.interrupts import Interrupts
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.learning.learner import Aborted, Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.progress import Progress
from benchmax.trainer.tiny_model import make_tiny
from benchmax.trainer.warm_start.supervised_refresh import MIN_SOLUTIONS, teach

torch.set_num_threads(1)  # the model is tiny


async def test_a_lesson_that_is_interrupted_leaves_the_weights_as_they_were(tmp_path: Path) -> None:
    policy = Policy.from_directory(make_tiny(tmp_path / "model", hidden=32, layers=2))
    config = TrainConfig()
    answer = TokenSequence(np.arange(10, 20), np.arange(5, 10), np.full(5, np.nan, np.float32), advantage=1.0)
    weights_at_measurements = []

    async def sample(*_: Any) -> list[list[Any]]:
        weights_at_measurements.append(policy.copy_weights())
        if len(weights_at_measurements) > 1:
            raise Aborted
        return [[SimpleNamespace(reward=0.0)]]

    async def solve_all(_: Any) -> list[Any]:
        return [SimpleNamespace(sequence=answer, reward=1.0)] * MIN_SOLUTIONS

    async def push() -> None: ...

    trainer: Any = SimpleNamespace(
        config=config,
        learner=Learner(policy, config),
        progress=Progress(step=3),
        stream=SimpleNamespace(examples=[{"id": str(number)} for number in range(20)]),
        solver=SimpleNamespace(solve_all=solve_all),
        sampler=SimpleNamespace(sample=sample),
        interrupts=Interrupts(lambda seconds: None),
        push=push,
        on_group=lambda group: None,
        notify=lambda kind, **data: None,
    )
    with pytest.raises(Aborted):
        await teach(trainer)
    trainer.interrupts.close()
    before, during = weights_at_measurements
    assert any(not torch.equal(before[name], during[name]) for name in before), "the lesson had begun"
    after = policy.copy_weights()
    assert all(torch.equal(before[name], after[name]) for name in before)
