"""Learning-rate decay on a plateau: with few samples a step, the policy oscillates around what it could be, and settles
when the learning rate is halved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmax.trainer.progress import STUCK_EVALUATIONS

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

LR_FACTOR = 0.5
MIN_LR_SHARE = 0.1
"""The smallest share of the configured learning rate."""


def decay_learning_rate(trainer: Trainer) -> None:
    """Lower the learning rate of a run whose evaluations get no better, unless it is low already."""
    optimizer = trainer.learner.optimizer
    if not trainer.config.optim.cooling or optimizer.ceiling <= MIN_LR_SHARE:
        return
    optimizer.lower_ceiling(LR_FACTOR, MIN_LR_SHARE)
    lr = optimizer.lr * optimizer.ceiling
    trainer.emit(
        "cooled", step=trainer.progress.step, lr=lr,
        message=f"{STUCK_EVALUATIONS} evaluations in a row got no better: the learning rate is {lr:.1e} at most from "
        "here on.",
    )  # fmt: skip
