"""One step of learning: from scored groups to changed weights.

The batch is cut into micro-batches by a token budget. When memory runs out the budget is halved and the step is done
again; when a loss or a gradient is not finite the update is left out. Weights change only in `Optimizer.step`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmax.errors import UsageError
from benchmax.memory import out_of_memory
from benchmax.rollouts.record import Rollout
from benchmax.trainer.batch import Batch, MicroBatch, sequence_of
from benchmax.trainer.config import TrainConfig, preset_lr
from benchmax.trainer.loss import LossRule, LossStats, grpo_loss
from benchmax.trainer.optim import Optimizer
from benchmax.trainer.policy import Policy

logger = logging.getLogger(__name__)

CPU_TOKENS, CPU_ROW = 512, 512
CUDA_TOKENS, CUDA_ROW = 16_384, 1_024
CUDA_MULTIPLE = 64
LEAST_TOKENS = 64


class Aborted(Exception):
    """The step was given up before its first update; the weights are as they were."""


@dataclass(slots=True)
class _Part:
    """A mini-batch with the log-probs that stay fixed while it is learned from."""

    batch: Batch
    weight: Tensor
    exact: Tensor | None
    """The policy's own before the first update; none when the pass that learns gives the same."""
    base: Tensor | None


class Learner:
    """Owns the policy's optimizer and turns groups into updates."""

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        self.policy = policy
        self.config = config
        algorithm, optim = config.algorithm, config.optim
        on_cuda = policy.device.type == "cuda"
        self.token_budget = optim.token_budget or (CUDA_TOKENS if on_cuda else CPU_TOKENS)
        self.row_tokens = optim.row_tokens or (CUDA_ROW if on_cuda else CPU_ROW)
        self.multiple = CUDA_MULTIPLE if on_cuda else 1
        self.updates_a_step = algorithm.updates * algorithm.minibatches
        self.rule = LossRule(algorithm.clip_low, algorithm.clip_high, algorithm.kl, algorithm.importance_cap)
        self.optimizer = Optimizer(
            policy.parameters(),
            optim,
            lr=optim.lr or preset_lr(policy.size(), config.model.tune),
            total=config.limits.steps * self.updates_a_step,
        )
        if algorithm.kl:
            policy.keep_base()

    def learn(
        self, groups: Sequence[Sequence[Rollout]], abort: Callable[[], bool] = lambda: False, *, step: int = 0
    ) -> dict[str, float]:
        """Update on the rollouts that were not discarded. Gives the metrics of the update, {} without any rollout.

        `step` is how many steps are done: the learning rate decays with them.
        """
        sequences = [
            sequence_of(rollout, index)
            for index, group in enumerate(groups)
            for rollout in group
            if rollout.discarded is None
        ]
        batch = Batch.of(sequences)
        if not len(batch):
            return {}
        algorithm = self.config.algorithm
        self.optimizer.due = step * self.updates_a_step
        stats = LossStats()
        results: list[dict[str, float]] = []
        parts = [self._prepare(part) for part in batch.split(algorithm.minibatches)]
        for _ in range(algorithm.updates):
            for part in parts:
                results.append(self._update(part, stats, abort if not results else lambda: False))
        return self._report(stats, results)

    def _prepare(self, batch: Batch) -> _Part:
        algorithm, device = self.config.algorithm, self.policy.device
        weight = batch.weights(algorithm.normalise, self.config.rollouts.max_new_tokens)
        batch.advantage, batch.sampler = batch.advantage.to(device), batch.sampler.to(device)
        noisy = self.updates_a_step > 1 or self.policy.has_dropout
        exact = self.with_memory(lambda: self.score(batch)) if noisy else None
        base = None
        if algorithm.kl:
            with self.policy.base():
                base = self.with_memory(lambda: self.score(batch))
        return _Part(batch, weight.to(device), exact, base)

    @torch.no_grad()
    def score(self, batch: Batch) -> Tensor:
        """The policy's log-prob of every token of a batch."""
        scores = torch.empty(len(batch), device=self.policy.device)
        with self.policy.exact():
            for micro in batch.micro_batches(self.token_budget, self.row_tokens, self.multiple):
                micro = micro.to(self.policy.device)
                scores[micro.token] = self.policy.logprobs(micro)[0]
        return scores

    def _update(self, part: _Part, stats: LossStats, abort: Callable[[], bool]) -> dict[str, float]:
        own = LossStats()
        loss, packed = self.with_memory(lambda: self._backward(part, own, abort))
        lr = self.optimizer.current_lr()
        if math.isfinite(loss):
            norm = self.apply(self.optimizer)
        else:
            self.optimizer.clear()
            norm = float("nan")
        skipped = not (math.isfinite(loss) and math.isfinite(norm))
        if not skipped:
            stats.add(own.tokens, **own.sums)
        return {"loss": loss, "grad_norm": norm, "lr": lr, "packed": packed, "skipped": float(skipped)}

    def _backward(self, part: _Part, stats: LossStats, abort: Callable[[], bool]) -> tuple[float, float]:
        """Accumulate the gradient of one mini-batch; gives the loss and the tokens computed."""
        self.optimizer.clear()
        stats.sums.clear()
        stats.tokens = 0
        losses: list[Tensor] = []
        packed = 0
        for micro in part.batch.micro_batches(self.token_budget, self.row_tokens, self.multiple):
            if abort():
                self.optimizer.clear()
                raise Aborted
            losses.append(self._loss(micro.to(self.policy.device), part, stats))
            losses[-1].backward()  # type: ignore[no-untyped-call]
            packed += micro.input_ids.numel()
        return torch.stack([loss.detach() for loss in losses]).sum().item(), float(packed)

    def _loss(self, micro: MicroBatch, part: _Part, stats: LossStats) -> Tensor:
        logp, entropy = self.policy.logprobs(micro)
        token = micro.token
        exact = logp.detach() if part.exact is None else part.exact[token]
        loss = grpo_loss(
            logp,
            old=exact if self.updates_a_step > 1 else logp.detach(),
            exact=exact,
            sampler=part.batch.sampler[token],
            advantage=part.batch.advantage[token],
            weight=part.weight[token],
            rule=self.rule,
            base=None if part.base is None else part.base[token],
            stats=stats,
        )
        stats.add(0, entropy=entropy[micro.slot].sum())
        return loss

    def state(self) -> dict[str, int]:
        """What a checkpoint keeps besides weights and moments: the budget decides in which order gradients add up."""
        return {"token_budget": self.token_budget}

    def restore(self, state: Mapping[str, int]) -> None:
        self.token_budget = state.get("token_budget", self.token_budget)

    def apply(self, optimizer: Optimizer) -> float:
        """Let an optimizer change the weights; it cannot begin again when memory runs out half-way."""
        try:
            return optimizer.step()
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise UsageError(f"Out of memory in the optimizer. {_ways_to_save_memory(self.config)}") from None

    def with_memory(self, work: Callable[[], Any]) -> Any:
        """Do the work; when memory runs out, again with half the token budget, as often as that helps."""
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                self._halve()

    def _halve(self) -> None:
        self.optimizer.clear()
        if self.policy.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.token_budget // 2 < LEAST_TOKENS:
            raise UsageError(
                f"Out of memory, even with a single short row at a time. {_ways_to_save_memory(self.config)}"
            ) from None
        self.token_budget //= 2
        logger.warning("out of memory: going on with micro-batches of %d tokens", self.token_budget)

    def _report(self, stats: LossStats, results: list[dict[str, float]]) -> dict[str, float]:
        applied = [result for result in results if not result["skipped"]]
        report = stats.means()
        report["tokens/loss"] = float(stats.tokens)
        report["tokens/packed"] = sum(result["packed"] for result in results)
        report["skipped_updates"] = sum(result["skipped"] for result in results)
        report["lr"] = results[-1]["lr"]
        for name in ("loss", "grad_norm"):
            if applied:
                report[name] = sum(result[name] for result in applied) / len(applied)
        return report


def _ways_to_save_memory(config: TrainConfig) -> str:
    """What has not been done yet."""
    ways = ["lower rollouts.max_new_tokens or rollouts.max_tokens"]
    if not config.model.gradient_checkpointing:
        ways.append("switch on model.gradient_checkpointing")
    if config.model.tune == "full":
        ways.append("train with model.tune = 'lora'")
    listed = ", ".join([*ways, "or use a smaller model."])
    return listed[0].upper() + listed[1:]
