"""The supervised steps of a warm start: plain cross-entropy on what is shown, through the packing of the rollouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

import torch

from benchmax.trainer.config import OptimConfig, SftConfig
from benchmax.trainer.config.fitting import MOST_CPU_TOKENS
from benchmax.trainer.learning.batch import Batch, TokenSequence
from benchmax.trainer.learning.learner import Aborted, Learner
from benchmax.trainer.learning.optim import Optimizer

OnStep = Callable[[int, int, float], None]
"""Told the step, the number of steps and the loss."""
SMALLEST_BATCH = 8


def warm_start(
    learner: Learner,
    sequences: Sequence[TokenSequence],
    config: SftConfig,
    *,
    seed: int = 0,
    on_step: OnStep = lambda step, steps, loss: None,
    abort: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train on the sequences; gives the loss of each step. Raises Aborted between two of them when asked to."""
    batches = [
        order[start : start + config.batch]
        for epoch in range(config.epochs)
        for order in [random.Random(f"{seed} sft {epoch}").sample(list(sequences), len(sequences))]
        for start in range(0, len(sequences), config.batch)
    ]
    lr = config.lr or learner.optimizer.lr
    optimizer = Optimizer(learner.policy.parameters(), OptimConfig(schedule="linear"), lr=lr, total=len(batches))
    losses: list[float] = []
    for step, chosen in enumerate(batches):
        if abort():
            raise Aborted
        losses.append(learn_batch(learner, chosen, optimizer))
        on_step(step, len(batches), losses[-1])
    return losses


class Teacher:
    """Shows solutions a few steps at a time, for as long as it is asked to."""

    def __init__(self, learner: Learner, sequences: Sequence[TokenSequence], config: SftConfig, seed: str) -> None:
        self.learner = learner
        self.steps = 0
        """Steps so far."""
        lr = config.lr or learner.optimizer.lr
        self._optimizer = Optimizer(learner.policy.parameters(), OptimConfig(), lr=lr, total=1)
        self._batches = self._shuffled(list(sequences), config.batch, seed)

    def teach(self, steps: int, on_step: OnStep, abort: Callable[[], bool]) -> None:
        """So many steps more. Raises Aborted between two of them when asked to."""
        for _ in range(steps):
            if abort():
                raise Aborted
            loss = learn_batch(self.learner, next(self._batches), self._optimizer)
            on_step(self.steps, self.steps + 1, loss)
            self.steps += 1

    def _shuffled(self, sequences: list[TokenSequence], size: int, seed: str) -> Iterator[list[TokenSequence]]:
        """The solutions in batches, in another order in every pass."""
        size = self._affordable(sequences, size)
        for again in count():
            order = random.Random(f"{seed} {again}").sample(sequences, len(sequences))
            for start in range(0, len(order), size):
                yield order[start : start + size]

    def _affordable(self, sequences: Sequence[TokenSequence], size: int) -> int:
        """Rows in one step: fewer on a CPU, where long ones take their time and a few show as much."""
        while self.learner.policy.device.type == "cpu" and size > SMALLEST_BATCH:
            packed = self.learner.micro_batches(Batch.of(sequences[:size]))
            if sum(micro.input_ids.numel() for micro in packed) <= MOST_CPU_TOKENS // 2:
                break
            size //= 2
        return size


def learn_batch(learner: Learner, sequences: Sequence[TokenSequence], optimizer: Optimizer) -> float:
    """One step on some sequences; gives the loss."""
    loss: float = learner.with_memory(partial(_backward, learner, Batch.of(sequences)))
    learner.apply(optimizer)
    return loss


def _backward(learner: Learner, batch: Batch) -> float:
    """Accumulate the gradient of the mean loss of the batch's tokens, which is given."""
    policy = learner.policy
    learner.optimizer.clear()
    weight = batch.weights("token", 1).to(policy.device)
    total = torch.zeros((), device=policy.device)
    for micro in learner.micro_batches(batch):
        micro = micro.to(policy.device)
        loss = -(policy.logprobs(micro, temperature=1.0)[0] * weight[micro.token]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total.item()
