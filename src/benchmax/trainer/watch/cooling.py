"""Smaller steps once evaluations stop getting better: with few samples a step, the policy goes to and fro around what
it could be, and settles when the learning rate is halved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

STALE = 2
"""Evaluations without a better one, after which the learning rate is halved."""
HALF = 0.5
COLDEST = 0.1
"""The smallest share of the learning rate that was asked for."""


class Cooler:
    """Lowers the learning rate of one run."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def is_due(self) -> bool:
        trainer = self._trainer
        stuck = trainer.progress.idle >= STALE and trainer.progress.evaluated == trainer.progress.step
        return trainer.config.optim.cooling and stuck and trainer.learner.optimizer.ceiling > COLDEST

    def cool(self) -> None:
        progress, optimizer = self._trainer.progress, self._trainer.learner.optimizer
        progress.idle = 0
        optimizer.cool(HALF, COLDEST)
        lr = optimizer.lr * optimizer.ceiling
        self._trainer.emit(
            "cooled", step=progress.step, lr=lr,
            message=f"{STALE} evaluations brought nothing better: the learning rate is {lr:.1e} at most from here on.",
        )  # fmt: skip
