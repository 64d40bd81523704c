"""The GRPO loss on log-probs, one number per sampled token.

    ratio  = exp(logp - old)                       old: the trainer's log-probs before the first update of this batch
    policy = -min(ratio·A, clip(ratio)·A)          A: the sample's advantage
    loss   = Σ weight · (correction · policy + β · KL(policy ‖ base))

`correction` is min(exp(exact - sampler), cap): 1 when trainer and sampler agree; `exact` is `old` unless that was
computed with dropout. `weight` spreads 1 over tokens or sequences (`Batch.weights`), so a batch may be split into
micro-batches anywhere. A demonstration in the place of a group without signal has A = 1 and no sampler: the gradient of
its tokens is that of their cross-entropy. Shaped weights p / (p + 0.1) (LUFFY, arXiv 2504.14945) do not help: they
leave a token with p = 1e-4 a thousandth of its gradient, so a model that gives every question one answer never leaves
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmax import metrics
from benchmax.trainer.config import AlgorithmConfig


@dataclass(slots=True)
class LossStats:
    """Sums over tokens, turned into means at the end of a step; they stay on the device until then."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    tokens: int = 0

    def add(self, tokens: int, values: Mapping[str, Tensor]) -> None:
        self.tokens += tokens
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def means(self) -> dict[str, float]:
        return {name: value.item() / max(1, self.tokens) for name, value in self.sums.items()}


def grpo_loss(
    logp: Tensor,
    *,
    old: Tensor,
    sampler: Tensor,
    advantage: Tensor,
    weight: Tensor,
    rule: AlgorithmConfig = AlgorithmConfig(),
    exact: Tensor | None = None,
    base: Tensor | None = None,
    stats: LossStats | None = None,
) -> Tensor:
    """The loss of some tokens. `sampler` is NaN where unknown; `base` is needed when `rule.kl` is not 0."""
    ratio = torch.exp(logp - old)
    clipped = ratio.clamp(1 - rule.clip_low, 1 + rule.clip_high)
    policy = -torch.minimum(ratio * advantage, clipped * advantage)
    gap = torch.where(torch.isnan(sampler), 0.0, (old if exact is None else exact) - sampler)
    if rule.importance_cap:
        policy = policy * torch.exp(gap).clamp(max=rule.importance_cap)
    total = policy
    if rule.kl:
        assert base is not None
        total = total + rule.kl * kl_estimate(logp, base)
    if stats is not None:
        with torch.no_grad():
            high = (ratio > 1 + rule.clip_high) & (advantage > 0)
            low = (ratio < 1 - rule.clip_low) & (advantage < 0)
            values = {
                metrics.RATIO: ratio.sum(),
                metrics.CLIP_FRACTION: (high | low).float().sum(),
                metrics.DRIFT: gap.abs().sum(),
            }
            if base is not None:
                values[metrics.KL] = kl_estimate(logp, base).sum()
        stats.add(len(logp), values)
    return (total * weight).sum()


def kl_estimate(logp: Tensor, base: Tensor) -> Tensor:
    """KL(policy ‖ base) of each token by the k3 estimator: never negative, unbiased, low variance."""
    difference = base - logp
    return torch.exp(difference) - difference - 1


def select_logprobs(logits: Tensor, slot: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs of `target` under the rows `slot` of `logits`, and the entropy of every row (without gradient)."""
    logp, entropy = _SelectLogprobs.apply(logits, slot, target)  # type: ignore[no-untyped-call]
    return logp, entropy


class _SelectLogprobs(torch.autograd.Function):
    """Log-softmax at a few positions, with its gradient in one buffer: the vocabulary is wide, and autograd would fill
    five buffers of the size of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, slot: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.float()
        normaliser = torch.logsumexp(logits, dim=-1)
        probability = torch.sub(logits, normaliser.unsqueeze(-1)).exp_()
        entropy = normaliser - torch.linalg.vecdot(probability, logits)
        ctx.save_for_backward(probability, slot, target)
        ctx.mark_non_differentiable(entropy)
        return logits[slot, target] - normaliser[slot], entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        probability, slot, target = ctx.saved_tensors
        weight = torch.zeros(len(probability), device=grad.device).index_add_(0, slot, grad)
        whole = probability * -weight.unsqueeze(-1)
        whole.index_put_((slot, target), grad, accumulate=True)
        return whole, None, None
