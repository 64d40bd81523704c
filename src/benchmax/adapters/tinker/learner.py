"""One step of learning on Tinker's server: the embedded trainer's loss, as far as the server has it.

The server adds up the gradients of what it is sent, so a token's weight in the loss goes into its advantage:

    sampled tokens    `ppo`, clipped around the sampler's log-probs; A · weight on what was sampled, 0 on the rest
    demonstrations    `cross_entropy`, with the same weight

The server reports log-probs, from which drift, loss and entropy are computed here, under the embedded trainer's names;
entropy is its estimate from the sampled tokens. Gradient norms and the trust region stay out: no answer has them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from benchmax import metrics
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import OptimConfig, TrainConfig
from benchmax.trainer.config.chosen_settings import preset_lr
from benchmax.trainer.learning.batch import Batch, TokenSequence
from benchmax.trainer.learning.learner import Aborted
from benchmax.trainer.learning.loss import LossStats, grpo_loss
from benchmax.trainer.learning.optim import LARGEST_SHARE, Optimizer

if TYPE_CHECKING:
    from benchmax.adapters.tinker.remote import RemoteModel

USUAL_SIZE = 1_000_000_000
"""Parameters of a model whose name does not say how many."""


class TinkerPolicy:
    """What the loop asks of a policy whose weights are elsewhere."""

    tune = "lora"
    device = torch.device("cpu")
    """Where its log-probs arrive."""

    def __init__(self, vocabulary: int, temperature: float) -> None:
        self.vocabulary, self.temperature = vocabulary, temperature

    def parameters(self) -> dict[str, Tensor]:
        """None of them are here: a checkpoint names what the server saved."""
        return {}

    sampler_weights = parameters


class TinkerOptimizer(Optimizer):
    """The learning rate of each update; weights and moments are on the server."""

    def __init__(self, config: OptimConfig, *, lr: float, total: int) -> None:
        self.weights, self.config, self.lr, self.total = {}, config, lr, total
        self.share, self.ceiling = 1.0, LARGEST_SHARE
        self.updates = self.due = 0

    def params(self) -> Any:
        """The next update's, as Tinker takes them."""
        from tinker import AdamParams

        optim = self.config
        return AdamParams(
            learning_rate=self.current_lr(),
            beta1=optim.beta1,
            beta2=optim.beta2,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            grad_clip_norm=optim.grad_clip or 0.0,
        )


class TinkerLearner:
    """Turns groups into updates on the server."""

    def __init__(self, remote: RemoteModel, config: TrainConfig, vocabulary: int) -> None:
        self.remote, self.config = remote, config
        algorithm = config.algorithm
        self.policy = TinkerPolicy(vocabulary, config.rollouts.temperature)
        self.updates_a_step = algorithm.updates * algorithm.minibatches
        self.rule = algorithm.model_copy(update={"kl": 0.0, "importance_cap": 0.0})
        lr = config.optim.lr or preset_lr(size_of(config.model.name), "lora")
        self.optimizer = TinkerOptimizer(config.optim, lr=lr, total=config.limits.steps * self.updates_a_step)

    def learn(
        self,
        groups: Sequence[Sequence[Rollout]],
        abort: Callable[[], bool] = lambda: False,
        *,
        step: int = 0,
        shown: Sequence[TokenSequence] = (),
    ) -> dict[str, float]:
        """Update on the rollouts that were not discarded. Returns the update's metrics, {} without any rollout."""
        batch = Batch.of_groups(groups, shown)
        if not len(batch):
            return {}
        if abort():
            raise Aborted
        self.optimizer.due = step * self.updates_a_step
        stats, losses = LossStats(), list[float]()
        for _ in range(self.config.algorithm.updates):
            for part in batch.split(self.config.algorithm.minibatches):
                losses.append(self._update(part, stats))
        return self._report(stats, losses)

    def _update(self, batch: Batch, stats: LossStats) -> float:
        """One optimizer step; returns the loss before it."""
        weight = batch.weights(self.config.algorithm.normalise, self.config.rollouts.max_new_tokens)
        logp = torch.empty(len(batch))
        clip = {"clip_low_threshold": 1 - self.rule.clip_low, "clip_high_threshold": 1 + self.rule.clip_high}
        sent: dict[str, list[int]] = {}
        losses = []
        for loss, shown, config in (("ppo", False, clip), ("cross_entropy", True, {})):
            sent[loss] = [index for index, sequence in enumerate(batch.sequences) if sequence.shown == shown]
            data = [datum(batch.sequences[index], weight[_span(batch, index)].numpy()) for index in sent[loss]]
            losses.append((loss, data, config))
        losses = [each for each in losses if each[1]]
        for (loss, _, _), answers in zip(losses, self.remote.update(losses, self.optimizer.params()), strict=True):
            for index, answer in zip(sent[loss], answers, strict=True):
                targets = batch.sequences[index].targets
                logp[_span(batch, index)] = torch.from_numpy(np.asarray(answer, np.float32)[targets - 1])
        self.optimizer.updates += 1
        self.optimizer.due += 1
        return self._loss(batch, logp, weight, stats)

    def _loss(self, batch: Batch, logp: Tensor, weight: Tensor, stats: LossStats) -> float:
        """The loss as the server computed it; where nothing sampled a token, its ratio is 1."""
        sampler = torch.where(torch.isnan(batch.sampler), logp, batch.sampler)
        own = LossStats()
        loss = grpo_loss(logp, old=sampler, exact=logp, sampler=sampler, advantage=batch.advantage, weight=weight,
                         rule=self.rule, stats=own).item()  # fmt: skip
        if math.isfinite(loss):
            stats.add(own.tokens, own.sums | {metrics.ENTROPY: -logp.sum()})
        return loss

    def _report(self, stats: LossStats, losses: Sequence[float]) -> dict[str, float]:
        finite = [loss for loss in losses if math.isfinite(loss)]
        report = stats.means() | {
            metrics.LOSS_TOKENS: float(stats.tokens),
            metrics.SKIPPED_UPDATES: float(len(losses) - len(finite)),
            metrics.LEARNING_RATE: self.optimizer.current_lr(),
        }
        return report | ({metrics.LOSS: sum(finite) / len(finite)} if finite else {})

    def state(self) -> dict[str, Any]:
        """Saves weights and moments on the server, and returns where, with what a checkpoint keeps besides."""
        return {
            "weights_at": self.remote.save(f"step-{self.optimizer.updates}"),
            "lr_share": self.optimizer.share,
            "lr_ceiling": self.optimizer.ceiling,
            "temperature": self.policy.temperature,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.remote.load(state["weights_at"])
        self.optimizer.share, self.optimizer.ceiling = state["lr_share"], state["lr_ceiling"]
        self.policy.temperature = state["temperature"]


def datum(sequence: TokenSequence, weight: np.ndarray[Any, Any]) -> Any:
    """A sequence as Tinker takes it: each token but the last predicts the next; 0 on what was not sampled."""
    import tinker

    values = {"weights": weight} if sequence.shown else {
        "advantages": weight * np.float32(sequence.advantage), "logprobs": sequence.logprobs,
    }  # fmt: skip
    inputs = {"target_tokens": tinker.TensorData.from_numpy(sequence.ids[1:])}
    for name, value in values.items():
        whole = np.zeros(len(sequence.ids) - 1, np.float32)
        whole[sequence.targets - 1] = value
        inputs[name] = tinker.TensorData.from_numpy(whole)
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(sequence.ids[:-1].tolist()), loss_fn_inputs=inputs)


def size_of(name: str) -> int:
    """The number of parameters that a model's name states: Qwen3-8B has 8e9."""
    found = re.search(r"(\d+(?:\.\d+)?)b(?![a-z])", name.rpartition("/")[2].lower())
    return int(float(found[1]) * 1e9) if found else USUAL_SIZE


def _span(batch: Batch, index: int) -> slice:
    """The numbers of a sequence's tokens in the batch."""
    first = batch.first[index]
    return slice(first, first + len(batch.sequences[index].targets))
