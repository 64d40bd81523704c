"""One step of learning: from scored groups to changed weights.

The batch is split into micro-batches by a token budget. When memory runs out the budget is halved and the step is
repeated; when a loss or a gradient is not finite the update is left out. Weights change only in `Optimizer.step`, and
where the trust region pulls an update back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from benchmax import metrics
from benchmax.errors import UsageError
from benchmax.memory import out_of_memory
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.config.chosen_settings import preset_lr
from benchmax.trainer.learning.batch import Batch, MicroBatch, TokenSequence, sequence_of
from benchmax.trainer.learning.gpu import claim_workspaces, release_if_scarce, retry_without_memory, wait_for_memory
from benchmax.trainer.learning.loss import LossStats, grpo_loss, kl_estimate
from benchmax.trainer.learning.optim import Optimizer
from benchmax.trainer.learning.policy import Policy

logger = logging.getLogger(__name__)

CPU_TOKENS, CPU_ROW = 512, 512
CUDA_TOKENS, CUDA_ROW = 8_192, 1_024
CUDA_MULTIPLE = 64
LEAST_TOKENS = 64

LONG_ROW = 1_024
ATTENTION_TOKENS = 700
"""Length of a row on CPU at which attention costs as much as all else."""
MEASURE_EVERY = 3
"""One of so many pieces of a batch is measured, to see how far an update moved the policy."""
MAX_COPIED_WEIGHTS = 1_000_000_000
"""Trained weights of which a copy is kept while they are updated."""
MAX_PULL_BACKS = 3
"""Most times that one update is pulled back."""
FAR_BELOW_FACTOR = 5
"""An update that moves the policy less than the trust region by this factor could be larger."""
RAISE_FACTOR = 1.2
MIN_UPDATE_SHARE = 0.1


class Aborted(Exception):
    """The step was abandoned before its first update; the weights are as they were."""


@dataclass(slots=True)
class _MiniBatch:
    """A mini-batch with the log-probs that stay fixed while it is learned from."""

    batch: Batch
    weight: Tensor
    exact: Tensor | None
    """The policy's own before the first update; None when the pass that learns computes the same."""
    base: Tensor | None
    before: Tensor
    """The policy's log-probs at the last backward pass."""


@dataclass(slots=True)
class _Update:
    """What one optimizer step did."""

    loss: float
    norm: float
    lr: float
    packed: float
    moved: float | None

    @property
    def skipped(self) -> bool:
        return not (math.isfinite(self.loss) and math.isfinite(self.norm))


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
        self.optimizer = Optimizer(
            policy.parameters(),
            optim,
            lr=optim.lr or preset_lr(policy.size(), config.model.tune),
            total=config.limits.steps * self.updates_a_step,
        )
        if algorithm.kl:
            policy.keep_base()
        claim_workspaces(policy.device)

    def learn(
        self,
        groups: Sequence[Sequence[Rollout]],
        abort: Callable[[], bool] = lambda: False,
        *,
        step: int = 0,
        shown: Sequence[TokenSequence] = (),
    ) -> dict[str, float]:
        """Update on the rollouts that were not discarded. Returns the update's metrics, {} without any rollout.

        `step` is the number of steps done, with which the learning rate decays; `shown` are demonstrations.
        """
        batch = Batch.of_groups(groups, shown)
        if not len(batch):
            return {}
        algorithm = self.config.algorithm
        self.optimizer.due = step * self.updates_a_step
        stats = LossStats()
        updates: list[_Update] = []
        device = self.policy.device
        parts = batch.split(algorithm.minibatches)
        prepared = [retry_without_memory(partial(self._prepare, part), device) for part in parts]
        for part in prepared * algorithm.updates:
            updates.append(self._update(part, stats, abort if not updates else lambda: False))
        release_if_scarce(device)
        return _report(stats, updates)

    def _prepare(self, batch: Batch) -> _MiniBatch:
        algorithm, device = self.config.algorithm, self.policy.device
        weight = batch.weights(algorithm.normalise, self.config.rollouts.max_new_tokens)
        batch.advantage, batch.sampler = batch.advantage.to(device), batch.sampler.to(device)
        batch.shown = batch.shown.to(device)
        noisy = self.updates_a_step > 1 or self.policy.has_dropout
        exact = self.with_memory(lambda: self.score(batch)) if noisy else None
        base = None
        if algorithm.kl:
            with self.policy.base():
                base = self.with_memory(lambda: self.score(batch))
        return _MiniBatch(batch, weight.to(device), exact, base, torch.empty(len(batch), device=device))

    def dry_run(self, groups: Sequence[Sequence[Rollout]]) -> int:
        """Compute an update on some rollouts and discard it; returns the number of tokens computed."""
        batch = Batch.of(sequence_of(rollout) for group in groups for rollout in group)
        if not len(batch):
            return 0
        part = self._prepare(batch)
        _, packed = self.with_memory(lambda: self._backward(part, LossStats(), lambda: False))
        self.optimizer.clear()
        return int(packed)

    def micro_batches(self, batch: Batch) -> list[MicroBatch]:
        """The batch in pieces that fit into memory.

        On a CPU, long rows are taken where they are cheaper: they share more prefixes, and cost more attention.
        """
        packed = batch.micro_batches(self.token_budget, self.row_tokens, self.multiple)
        if self.policy.device.type != "cpu" or self.config.optim.row_tokens or self.token_budget < CPU_TOKENS:
            return packed
        return min(packed, batch.micro_batches(max(self.token_budget, LONG_ROW), LONG_ROW), key=_cost)

    def packed_tokens(self, sequences: Iterable[TokenSequence]) -> int:
        """Tokens to compute for these sequences, shared prefixes counted once."""
        batch = Batch.of(sequences)
        return sum(micro.input_ids.numel() for micro in self.micro_batches(batch)) if len(batch) else 0

    @torch.no_grad()
    def score(self, batch: Batch, every: int = 1) -> Tensor:
        """The policy's log-prob of every token of a batch; with `every`, of some pieces only, and NaN for the rest."""
        scores = torch.full((len(batch),), torch.nan, device=self.policy.device)
        with self.policy.exact():
            for micro in self.micro_batches(batch)[::every]:
                micro = micro.to(self.policy.device)
                scores[micro.token] = self.policy.logprobs(micro)[0]
        return scores

    def mean_probability(self, sequences: Sequence[TokenSequence]) -> float:
        """The mean probability of these sequences' targets, each as a whole."""
        batch = Batch.of(sequences)
        scores = self.with_memory(lambda: self.score(batch)).double()
        whole = torch.zeros(len(batch.sequences), dtype=scores.dtype, device=scores.device)
        return float(whole.index_add(0, batch.sequence.to(scores.device), scores).exp().mean())

    def _update(self, part: _MiniBatch, stats: LossStats, abort: Callable[[], bool]) -> _Update:
        own = LossStats()
        loss, packed = self.with_memory(lambda: self._backward(part, own, abort))
        done = _Update(loss, math.nan, self.optimizer.current_lr(), packed, moved=None)
        if math.isfinite(loss):
            old = retry_without_memory(self._copy_weights, self.policy.device)
            done.norm = self.apply(self.optimizer)
            if self.config.optim.trust_region and math.isfinite(done.norm):
                done.moved = self._enforce_trust_region(part, old)
        else:
            self.optimizer.clear()
        if not done.skipped:
            stats.add(own.tokens, own.sums)
        return done

    def _copy_weights(self) -> dict[str, Tensor]:
        """The weights before an update, to pull it back to; empty for a large model, which has no memory for a copy."""
        size = sum(weight.numel() for weight in self.policy.parameters().values())
        return {} if not self.config.optim.trust_region or size > MAX_COPIED_WEIGHTS else self.policy.copy_weights()

    def _enforce_trust_region(self, part: _MiniBatch, old: Mapping[str, Tensor]) -> float:
        """Pull an update that went too far back into the trust region; returns how far it goes in the end."""
        most = self.config.optim.trust_region
        moved = first = self._divergence(part)
        for _ in range(MAX_PULL_BACKS):
            if moved <= most or not old:
                break
            share = _share(most, moved)
            for name, weight in self.policy.parameters().items():
                weight.data.lerp_(old[name], 1 - share)
            moved = self._divergence(part)
        factor = _share(most, first) if first > most else RAISE_FACTOR if first < most / FAR_BELOW_FACTOR else 1.0
        self.optimizer.adapt(factor)
        return moved

    def _divergence(self, part: _MiniBatch) -> float:
        """How far the update moved the policy: the mean KL divergence per rollout, from before to after."""
        after = self.with_memory(lambda: self.score(part.batch, MEASURE_EVERY))
        change = after - part.before
        seen = ~part.batch.shown & ~torch.isnan(change)
        rollouts = len(torch.unique(part.batch.sequence.to(seen.device)[seen]))
        return float(kl_estimate(torch.zeros(()), change[seen].clamp(-20, 20)).sum()) / max(1, rollouts)

    def _backward(self, part: _MiniBatch, stats: LossStats, abort: Callable[[], bool]) -> tuple[float, float]:
        """Accumulate the gradient of one mini-batch; returns the loss and the number of tokens computed."""
        self.optimizer.clear()
        stats.sums.clear()
        stats.tokens = 0
        losses: list[Tensor] = []
        packed = 0
        for micro in self.micro_batches(part.batch):
            if abort():
                self.optimizer.clear()
                raise Aborted
            losses.append(self._loss(micro.to(self.policy.device), part, stats))
            losses[-1].backward()  # type: ignore[no-untyped-call]
            packed += micro.input_ids.numel()
        return torch.stack([loss.detach() for loss in losses]).sum().item(), float(packed)

    def _loss(self, micro: MicroBatch, part: _MiniBatch, stats: LossStats) -> Tensor:
        logp, entropy = self.policy.logprobs(micro)
        token = micro.token
        part.before[token] = logp.detach()
        exact = logp.detach() if part.exact is None else part.exact[token]
        loss = grpo_loss(
            logp,
            old=exact if self.updates_a_step > 1 else logp.detach(),
            exact=exact,
            sampler=part.batch.sampler[token],
            advantage=part.batch.advantage[token],
            weight=part.weight[token],
            rule=self.config.algorithm,
            base=None if part.base is None else part.base[token],
            stats=stats,
        )
        stats.add(0, {metrics.ENTROPY: entropy[micro.slot].sum()})
        return loss

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides weights and moments: the budget decides in which order gradients add up."""
        return {
            "token_budget": self.token_budget,
            "lr_share": self.optimizer.share,
            "lr_ceiling": self.optimizer.ceiling,
            "temperature": self.policy.temperature,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.token_budget = state.get("token_budget", self.token_budget)
        self.optimizer.share = state.get("lr_share", 1.0)
        self.optimizer.ceiling = state.get("lr_ceiling", 1.0)
        self.policy.temperature = state.get("temperature", self.policy.temperature)

    def apply(self, optimizer: Optimizer) -> float:
        """Apply an optimizer; UsageError when memory runs out, since its step cannot be repeated half-way."""
        try:
            return optimizer.step()
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise UsageError(f"Out of memory in the optimizer. {_ways_to_save_memory(self.config)}") from None

    def with_memory(self, work: Callable[[], Any]) -> Any:
        """Do the work; when memory runs out, repeat it with half the token budget, as often as that helps."""
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                self._halve()

    def _halve(self) -> None:
        self.optimizer.clear()
        wait_for_memory(self.policy.device)
        if self.token_budget // 2 < LEAST_TOKENS:
            raise UsageError(
                f"Out of memory, even with a single short row at a time. {_ways_to_save_memory(self.config)}"
            ) from None
        self.token_budget //= 2
        logger.warning("out of memory: going on with micro-batches of %d tokens", self.token_budget)


def _report(stats: LossStats, updates: Sequence[_Update]) -> dict[str, float]:
    """The metrics of a step's updates."""
    report = stats.means() | {
        metrics.LOSS_TOKENS: float(stats.tokens),
        metrics.PACKED_TOKENS: sum(update.packed for update in updates),
        metrics.SKIPPED_UPDATES: float(sum(update.skipped for update in updates)),
        metrics.LEARNING_RATE: updates[-1].lr,
    }
    if moved := [update.moved for update in updates if update.moved is not None]:
        report[metrics.MOVED] = fmean(moved)
    if applied := [update for update in updates if not update.skipped]:
        report[metrics.LOSS] = fmean(update.loss for update in applied)
        report[metrics.GRAD_NORM] = fmean(update.norm for update in applied)
    return report


def _cost(micros: Sequence[MicroBatch]) -> float:
    """What a pass costs, in tokens."""
    return sum(micro.input_ids.numel() * (1 + micro.input_ids.shape[1] / ATTENTION_TOKENS) for micro in micros)


def _share(most: float, moved: float) -> float:
    """The share of an update that moves the policy half as far as allowed: the divergence grows with the square."""
    return max(MIN_UPDATE_SHARE, math.sqrt(0.5 * most / moved)) if math.isfinite(moved) else MIN_UPDATE_SHARE


def _ways_to_save_memory(config: TrainConfig) -> str:
    """Advice on what has not been done yet."""
    ways = ["lower rollouts.max_new_tokens or rollouts.max_tokens"]
    if not config.model.gradient_checkpointing:
        ways.append("switch on model.gradient_checkpointing")
    if config.model.tune == "full":
        ways.append("train with model.tune = 'lora'")
    listed = ", ".join([*ways, "or use a smaller model."])
    return listed[0].upper() + listed[1:]
