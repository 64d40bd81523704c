"""Recovery from a collapse: the run goes back to its last good checkpoint and on with a smaller step or more entropy.

It does so at most `watch.mends` times, and each time an event says why. Then the run ends with a diagnosis; its best
checkpoint stays. Before it goes on it plays the held-out rows again: if the same weights no longer earn the same, the
reward has changed, and training cannot repair that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from benchmax.errors import NotFoundError, RewardError
from benchmax.trainer.checkpoint import Checkpoint, find_checkpoint, oldest_checkpoint
from benchmax.trainer.watch.monitor import Alert

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

REMEDIES = {
    "reward_collapse": "step",
    "held_out_collapse": "step",
    "entropy_blow_up": "step",
    "not_finite": "step",
    "length_blow_up": "step",
    "all_equal": "step",
    "entropy_collapse": "entropy",
}
"""The alerts after which a run goes back, and what it goes on with: a smaller step, or more entropy."""
NEED_NO_CONFIRMATION = ("held_out_collapse", "not_finite")
"""Alerts that the held-out rows need not confirm."""
LOST_SHARE = 0.2
"""The share of the range of rewards that held-out rows must have lost."""
LR_FACTOR = 0.3
"""What is left of the learning rate after going back."""
TEMPERATURE_FACTOR = 1.15
"""The factor of the sampling temperature for more entropy, up to `MAX_TEMPERATURE`."""
MAX_TEMPERATURE = 1.5
CHANGED_SHARE = 0.3
"""The share of the range of rewards by which the same weights must earn differently for the reward to have changed."""
NOT_FINITE_STEPS = 3
"""Steps in a row with a non-finite update after which a run goes back: a single one is left out and harmless."""


class CollapseRecovery:
    """Decides when a run goes back, and takes it there."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._alert: Alert | None = None
        self._not_finite: Alert | None = None
        self._skipped_steps = 0
        """Steps in a row whose update was left out."""
        self.diagnosis = ""
        """Why the run collapsed, once it went back as often as it may."""

    @property
    def is_due(self) -> bool:
        return self._alert is not None

    def observe_alerts(self, alerts: Sequence[Alert]) -> None:
        """Take in the alerts of a step or an evaluation."""
        if not self._trainer.config.watch.mends:
            return
        for alert in alerts:
            if alert.kind == "not_finite":
                self._not_finite = alert
            elif alert.kind in REMEDIES:
                self._alert = self._alert or alert

    def observe_skipped(self, skipped: float) -> None:
        """Take in how many updates of a step were left out."""
        self._skipped_steps = self._skipped_steps + 1 if skipped else 0
        if self._skipped_steps >= NOT_FINITE_STEPS and self._trainer.config.watch.mends:
            self._alert = self._alert or self._not_finite

    async def recover(self) -> None:
        """Go back to the last good checkpoint, or end with the diagnosis, if the held-out rows confirm the alert."""
        alert = self._alert
        assert alert is not None
        confirmed = alert.kind in NEED_NO_CONFIRMATION or await self._confirmed()
        self._alert = None  # only now: the evaluation that confirms an alert raises another for the same collapse
        if not confirmed:
            return
        self._skipped_steps = 0
        good = self._last_good()
        if good is None or self._trainer.progress.mends >= self._trainer.config.watch.mends:
            self._give_up(alert)
        else:
            await self._go_back(alert, good)

    async def _go_back(self, alert: Alert, good: Checkpoint) -> None:
        trainer = self._trainer
        at, mends = trainer.progress.step, trainer.progress.mends + 1
        share, temperature = trainer.learner.optimizer.share, trainer.learner.policy.temperature
        moved = trainer.restore(good)
        trainer.progress.mends = mends
        how = self._apply_remedy(REMEDIES[alert.kind], share, temperature)
        await trainer.push()
        trainer.emit(
            "mended", step=at, back_to=good.step, alert=alert.kind, mends=mends, lines_moved_aside=moved,
            message=f"{_what(alert)}. Back to the checkpoint of step {good.step}, {how} "
            f"({mends} of {trainer.config.watch.mends} times).",
        )  # fmt: skip
        await self._refuse_changed_reward(good)
        trainer.save(again=True)

    async def _confirmed(self) -> bool:
        """Whether the held-out rows have lost a good part, too; a step's prompts may just have been harder."""
        trainer = self._trainer
        if not trainer.held_out or trainer.progress.best is None:
            return True
        if trainer.progress.evaluated != trainer.progress.step:
            await trainer.evaluate()
        now = trainer.progress.last
        return now is not None and trainer.progress.best - now > LOST_SHARE * trainer.monitor.history.reward_span

    def _apply_remedy(self, remedy: str, share: float, temperature: float) -> str:
        """Change what the run goes on with; returns a description of it."""
        learner = self._trainer.learner
        learner.optimizer.share = min(learner.optimizer.share, share) * (LR_FACTOR if remedy == "step" else 1.0)
        if remedy == "step":
            return f"on with a learning rate of {learner.optimizer.lr * learner.optimizer.share:.1e}"
        learner.policy.temperature = min(
            MAX_TEMPERATURE, max(temperature, learner.policy.temperature) * TEMPERATURE_FACTOR
        )
        return f"on with a sampling temperature of {learner.policy.temperature:.2f}"

    def _last_good(self) -> Checkpoint | None:
        """The best checkpoint; where none is known as the best, the oldest, which is least likely to be affected."""
        folder = self._trainer.run.path / "checkpoints"
        with suppress(NotFoundError):
            return find_checkpoint(folder, "best")
        return oldest_checkpoint(folder)

    async def _refuse_changed_reward(self, good: Checkpoint) -> None:
        """Raise RewardError unless the same weights earn what they earned when the checkpoint was made."""
        trainer, progress = self._trainer, self._trainer.progress
        if progress.evaluated != good.step or progress.last is None or trainer.config.eval.temperature > 0:
            return
        values, _ = await trainer.play_held_out("eval")
        now = trainer.counted(values)
        if now is not None and abs(now - progress.last) > CHANGED_SHARE * trainer.monitor.history.reward_span:
            raise RewardError(
                f"The reward has changed: the weights of step {good.step} earn {now:.2f} on the held-out rows, where "
                f"they earned {progress.last:.2f}. Put compute_reward or its judge right, then resume the run."
            )

    def _give_up(self, alert: Alert) -> None:
        progress = self._trainer.progress
        went_back = f"It went back {progress.mends} times, and that did not help"
        parts = [_what(alert), went_back if progress.mends else "There is no checkpoint to go back to"]
        if progress.best is not None:
            parts.append(
                f"The best checkpoint is step-{progress.best_step}, with a held-out reward of {progress.best:.2f}"
            )
        advice = ". ".join(alert.message.split(". ")[1:]) or "Read the rollouts of the last steps."
        self.diagnosis = ". ".join([*parts, advice])
        self._trainer.emit("collapsed", step=progress.step, alert=alert.kind, message=self.diagnosis)


def _what(alert: Alert) -> str:
    """The first sentence of an alert: what happened."""
    return alert.message.split(". ")[0]
