"""Learning-rate decay on a plateau: with few samples a step, the policy oscillates around what it could be, and settles
when the learning rate is halved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmax.trainer.progress import STUCK

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

FACTOR = 0.5
SMALLEST = 0.1
"""The smallest share of the configured learning rate."""


class PlateauDecay:
    """Lowers the learning rate of a run whose evaluations get no better."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def is_due(self) -> bool:
        return self._trainer.config.optim.cooling and self._trainer.learner.optimizer.ceiling > SMALLEST

    def decay(self) -> None:
        optimizer = self._trainer.learner.optimizer
        optimizer.lower_ceiling(FACTOR, SMALLEST)
        lr = optimizer.lr * optimizer.ceiling
        self._trainer.emit(
            "cooled", step=self._trainer.progress.step, lr=lr,
            message=f"{STUCK} evaluations in a row got no better: the learning rate is {lr:.1e} at most from here on.",
        )  # fmt: skip
