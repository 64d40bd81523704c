"""Supervised steps: plain cross-entropy on given sequences, through the same packing as rollouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice

import torch

from benchmax.trainer.config import OptimConfig, SftConfig
from benchmax.trainer.config.chosen_settings import MAX_CPU_TOKENS
from benchmax.trainer.learning.batch import Batch, TokenSequence
from benchmax.trainer.learning.learner import Aborted, Learner
from benchmax.trainer.learning.optim import Optimizer

OnStep = Callable[[int, int, float], None]
"""Called with the step, the number of steps and the loss."""
SMALLEST_BATCH = 8


def train_epochs(
    learner: Learner,
    sequences: Sequence[TokenSequence],
    config: SftConfig,
    *,
    seed: int = 0,
    on_step: OnStep = lambda step, steps, loss: None,
    abort: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train `sft.epochs` passes over the sequences; returns the loss of each step."""
    passes = (_shuffled(sequences, config.batch, f"{seed} sft {epoch}") for epoch in range(config.epochs))
    batches = [batch for each in passes for batch in each]
    lr = config.lr or learner.optimizer.lr
    optimizer = Optimizer(learner.policy.parameters(), OptimConfig(schedule="linear"), lr=lr, total=len(batches))
    losses: list[float] = []
    for batch in batches:
        losses.append(_step(learner, batch, optimizer, abort))
        on_step(len(losses) - 1, len(batches), losses[-1])
    return losses


class SupervisedSteps:
    """Trains on solutions a few steps at a time, for as long as it is asked to."""

    def __init__(self, learner: Learner, sequences: Sequence[TokenSequence], config: SftConfig, seed: str) -> None:
        self.learner = learner
        self.done = 0
        """Steps so far."""
        lr = config.lr or learner.optimizer.lr
        self._optimizer = Optimizer(learner.policy.parameters(), OptimConfig(), lr=lr, total=1)
        size = self._affordable(sequences, config.batch)
        self._batches = (batch for epoch in count() for batch in _shuffled(sequences, size, f"{seed} {epoch}"))

    def run(self, steps: int, on_step: OnStep, abort: Callable[[], bool]) -> None:
        """Take so many more steps."""
        for batch in islice(self._batches, steps):
            on_step(self.done, self.done + 1, _step(self.learner, batch, self._optimizer, abort))
            self.done += 1

    def _affordable(self, sequences: Sequence[TokenSequence], size: int) -> int:
        """Sequences in one step: fewer on a CPU, where long ones take their time and a few teach as much."""
        on_cpu = self.learner.policy.device.type == "cpu"
        while on_cpu and size > SMALLEST_BATCH and self.learner.packed_tokens(sequences[:size]) > MAX_CPU_TOKENS // 2:
            size //= 2
        return size


def _shuffled(sequences: Sequence[TokenSequence], size: int, seed: str) -> list[list[TokenSequence]]:
    """One pass over the sequences, in batches."""
    order = random.Random(seed).sample(list(sequences), len(sequences))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _step(
    learner: Learner, sequences: Sequence[TokenSequence], optimizer: Optimizer, abort: Callable[[], bool]
) -> float:
    """One step; returns its loss. Raises Aborted instead when asked to."""
    if abort():
        raise Aborted
    loss: float = learner.with_memory(partial(_backward, learner, Batch.of(sequences)))
    learner.apply(optimizer)
    return loss


def _backward(learner: Learner, batch: Batch) -> float:
    """Accumulate the gradient of the mean loss of the batch's tokens; returns the loss."""
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
