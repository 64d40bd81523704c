"""Going back: a run that collapses returns to its last good checkpoint and goes on with a smaller step or more entropy.

It does so at most `watch.mends` times, and says each time why. Then it ends with the diagnosis: what was good stays in
its best checkpoint. Before it goes on it looks whether the same weights still earn what they earned: if not, it is the
reward that has changed, and no training mends that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from benchmax.errors import NotFoundError, RewardError
from benchmax.trainer.checkpoint import Checkpoint, find_checkpoint, oldest_checkpoint
from benchmax.trainer.watch.alarms import Alert

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

MENDED = {
    "reward_collapse": "step",
    "held_out_collapse": "step",
    "entropy_blow_up": "step",
    "not_finite": "step",
    "length_blow_up": "step",
    "all_equal": "step",
    "entropy_collapse": "entropy",
}
"""The alarms after which a run goes back, and what it goes on with: a smaller step, or more entropy."""
CERTAIN = ("held_out_collapse", "not_finite")
"""Alarms that need no confirmation."""
LOST = 0.2
"""A share of the rewards' range that held-out rows must have lost."""
SMALLER = 0.3
"""What is left of the learning rate after going back."""
WARMER = 1.15
"""What the sampling temperature is multiplied with for more entropy, up to `HOTTEST`."""
HOTTEST = 1.5
CHANGED = 0.3
"""A share of the rewards' range by which the same weights must earn differently for the reward to have changed."""
AT_ONCE = 3
"""Steps in a row with a non-finite update, before a run goes back for them: one was left out, and did no harm."""


class Mender:
    """Decides when one run goes back, and takes it there."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._alert: Alert | None = None
        self._broken = 0
        """Updates in a row that were left out."""
        self._unfinite: Alert | None = None
        self.at_end = False
        """Whether it went back as often as it may."""
        self.diagnosis = ""

    @property
    def wanted(self) -> bool:
        return self._alert is not None

    def look_at(self, alerts: Sequence[Alert]) -> None:
        """Take in what the alarms say of a step or an evaluation."""
        if not self._trainer.config.watch.mends:
            return
        for alert in alerts:
            if alert.kind == "not_finite":
                self._unfinite = alert
            elif alert.kind in MENDED:
                self._alert = self._alert or alert

    def count(self, skipped: float) -> None:
        """Take in how many updates of a step were left out."""
        self._broken = self._broken + 1 if skipped else 0
        if self._broken >= AT_ONCE and self._trainer.config.watch.mends:
            self._alert = self._alert or self._unfinite

    async def mend(self) -> None:
        """Back to the last good checkpoint, or to the end with the diagnosis, if the held-out rows show it too."""
        alert, trainer = self._alert, self._trainer
        assert alert is not None
        if alert.kind not in CERTAIN and not await self._confirmed():
            self._alert = None
            return
        self._alert, self._broken = None, 0
        mends, most = trainer.progress.mends, trainer.config.watch.mends
        good = self._last_good()
        if mends >= most or good is None:
            self._end(alert, mends)
            return
        at = trainer.progress.step
        share, temperature = trainer.learner.optimizer.share, trainer.learner.policy.temperature
        moved = trainer.restore(good)
        trainer.progress.mends = mends + 1
        how = self._change(MENDED[alert.kind], share, temperature)
        await trainer.push()
        trainer.emit(
            "mended", step=at, back_to=good.step, alert=alert.kind, mends=mends + 1, lines_moved_aside=moved,
            message=f"{alert.message.split('. ')[0]}. Back to the checkpoint of step {good.step}, {how} "
            f"({mends + 1} of {most} times).",
        )  # fmt: skip
        await self._compare(good)
        trainer.save(again=True)

    async def _confirmed(self) -> bool:
        """Whether the held-out rows have lost a good part, too; a step's prompts may just have been harder."""
        trainer = self._trainer
        if not trainer.held_out or trainer.progress.best is None:
            return True
        if trainer.progress.evaluated != trainer.progress.step:
            await trainer.evaluate()
        now, (low, high) = trainer.progress.last, trainer.watchdogs.scale
        return now is not None and trainer.progress.best - now > LOST * (high - low)

    def _change(self, what: str, share: float, temperature: float) -> str:
        """Make the run go another way than before; gives how, in words."""
        learner = self._trainer.learner
        learner.optimizer.share = min(learner.optimizer.share, share) * (SMALLER if what == "step" else 1.0)
        if what == "step":
            return f"on with a learning rate of {learner.optimizer.lr * learner.optimizer.share:.1e}"
        learner.policy.temperature = min(HOTTEST, max(temperature, learner.policy.temperature) * WARMER)
        return f"on with a sampling temperature of {learner.policy.temperature:.2f}"

    def _last_good(self) -> Checkpoint | None:
        """The best one; where none is known as the best, the oldest: trouble is least likely to be in it."""
        folder = self._trainer.run.path / "checkpoints"
        with suppress(NotFoundError):
            return find_checkpoint(folder, "best")
        return oldest_checkpoint(folder)

    async def _compare(self, good: Checkpoint) -> None:
        """Whether the same weights still earn what they earned when the checkpoint was made."""
        trainer = self._trainer
        progress = trainer.progress
        if progress.evaluated != good.step or progress.last is None or trainer.config.eval.temperature > 0:
            return
        values, _ = await trainer.play_held_out("eval")
        now, low, high = trainer.counted(values), *trainer.watchdogs.scale
        if now is not None and abs(now - progress.last) > CHANGED * (high - low):
            raise RewardError(
                f"The reward has changed: the weights of step {good.step} earn {now:.2f} on the held-out rows, where "
                f"they earned {progress.last:.2f}. Put compute_reward or its judge right, then resume the run."
            )

    def _end(self, alert: Alert, mends: int) -> None:
        progress = self._trainer.progress
        said = [alert.message.split(". ")[0], f"It went back {mends} times, and that did not help"]
        if not mends:
            said[1] = "There is no checkpoint to go back to"
        if progress.best is not None:
            said.append(
                f"The best checkpoint is step-{progress.best_step}, with a held-out reward of {progress.best:.2f}"
            )
        self.diagnosis = ". ".join([*said, _advice(alert)])
        self.at_end = True
        self._trainer.emit("collapsed", step=progress.step, alert=alert.kind, message=self.diagnosis)


def _advice(alert: Alert) -> str:
    """What to do about it by hand: the end of what the alarm says."""
    return ". ".join(alert.message.split(". ")[1:]) or "Read the rollouts of the last steps."
