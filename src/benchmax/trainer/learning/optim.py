"""AdamW with warm-up, decay and clipping, that never writes a NaN into the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from benchmax.errors import RecordError
from benchmax.trainer.config import OptimConfig

SMALLEST_SHARE, LARGEST_SHARE = 1e-3, 1.0
"""Bounds of an adapted learning rate, as shares of the configured one."""


class Optimizer:
    """Updates named weights; its whole state is `updates` and a flat dictionary of tensors."""

    def __init__(self, weights: Mapping[str, nn.Parameter], config: OptimConfig, *, lr: float, total: int) -> None:
        self.weights = dict(weights)
        self.config = config
        self.lr = lr
        self.total = total
        """Updates in the whole run, for the decay."""
        self.share = 1.0
        """The share of the learning rate in use; the trust region adapts it."""
        self.ceiling = LARGEST_SHARE
        """The largest share allowed from here on."""
        self.updates = 0
        self.due = 0
        """Updates there would have been by now if every step had one: the decay counts these."""
        self._adam = torch.optim.AdamW(
            self.weights.values(),
            lr=lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def step(self) -> float:
        """Apply the gradients and clear them. Returns their norm; when it is not finite nothing is applied."""
        grads = [weight.grad for weight in self.weights.values() if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        value = norm.item()
        if math.isfinite(value):
            if self.config.grad_clip:
                torch.nn.utils.clip_grads_with_norm_(self.weights.values(), self.config.grad_clip, norm)
            for group in self._adam.param_groups:
                group["lr"] = self.current_lr()
            self._adam.step()
            self.updates += 1
            self.due += 1
        self.clear()
        return value

    def clear(self) -> None:
        self._adam.zero_grad(set_to_none=True)

    def current_lr(self) -> float:
        """The learning rate of the next update."""
        warmup = self.config.warmup_steps
        at = self.updates if self.updates < warmup else max(self.updates, self.due)
        return self.lr * self.share * scale_at(at, warmup, self.total, self.config.schedule)

    def adapt(self, factor: float) -> None:
        """Lower or raise the learning rate for the next updates, within bounds of the configured one."""
        self.share = min(self.ceiling, max(SMALLEST_SHARE, self.share * factor))

    def lower_ceiling(self, factor: float, least: float) -> None:
        """Lower the learning rate permanently."""
        self.ceiling = max(least, self.ceiling * factor)
        self.share = min(self.share, self.ceiling)

    def tensors(self) -> dict[str, Tensor]:
        """AdamW's moments, by weight."""
        named: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            for key, value in self._adam.state.get(weight, {}).items():
                named[f"{name}:{key}"] = value
        return named

    def load(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Take over a state that `tensors()` returned."""
        self.updates = updates
        for name, value in tensors.items():
            weight_name, _, key = name.rpartition(":")
            if weight_name not in self.weights:
                raise RecordError(
                    f"The checkpoint has optimizer state for {weight_name}, which is not trained here. "
                    "Resume with the settings the run began with."
                )
            weight = self.weights[weight_name]
            self._adam.state[weight][key] = value.to(weight.device)


def scale_at(update: int, warmup: int, total: int, schedule: str) -> float:
    """The share of the learning rate at an update (from 0)."""
    if update < warmup:
        return (update + 1) / (warmup + 1)
    if schedule == "constant":
        return 1.0
    done = min(1.0, (update - warmup) / max(1, total - warmup))
    return 1.0 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
