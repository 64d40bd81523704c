"""Smaller steps once evaluations stop getting better: with few samples a step, the policy goes to and fro around what
it could be, and settles when the learning rate is halved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmax.trainer.progress import STUCK

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

HALF = 0.5
COLDEST = 0.1
"""The smallest share of the learning rate that was asked for."""


class Cooler:
    """Lowers the learning rate of one run that is stuck."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def is_due(self) -> bool:
        return self._trainer.config.optim.cooling and self._trainer.learner.optimizer.ceiling > COLDEST

    def cool(self) -> None:
        progress, optimizer = self._trainer.progress, self._trainer.learner.optimizer
        optimizer.cool(HALF, COLDEST)
        lr = optimizer.lr * optimizer.ceiling
        self._trainer.emit(
            "cooled", step=progress.step, lr=lr,
            message=f"{STUCK} evaluations in a row got no better: the learning rate is {lr:.1e} at most from here on.",
        )  # fmt: skip
