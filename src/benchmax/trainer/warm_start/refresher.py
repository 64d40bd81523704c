"""A run that gets no further is taught: solutions of most training rows, measured on the others.

Some tasks are found by comparing samples only after very long, and learned from solutions in a minute: which letter
stands before the right option. So when evaluations stop getting better far below what solutions earn, the run stops to
learn from them, for as long as that helps on rows it is *not* shown. If it does not help, the weights stay as they
were.
"""

from __future__ import annotations

import random
import time
from statistics import fmean
from typing import TYPE_CHECKING

from torch import Tensor

from benchmax.envs.types import Example
from benchmax.trainer.checkpoint import load_weights, trained_weights
from benchmax.trainer.sampler import Draw
from benchmax.trainer.warm_start.teaching import Teacher

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

ROOM = 0.1
"""Share of what solutions earn that must be missing for it."""
MOST = 2
"""Times in one run."""
STEPS = 8
"""Between two looks at what it helps."""
LOOKS = 20
"""At most."""
SECONDS = {"cpu": 120.0, "cuda": 60.0}
"""At most, by device."""
PATIENCE = 13
"""Looks without a better one, after which it is given up: what is learned late comes suddenly."""
WATCHED = 32
"""Training rows that are not shown, on which the help is measured."""
FEWEST = 16
"""Solutions below which there is nothing to teach."""
HELPED = 0.05
"""Share of what solutions earn that must be gained for the new weights to stay."""


class Refresher:
    """Teaches one run that is stuck."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def is_due(self) -> bool:
        trainer = self._trainer
        progress = trainer.progress
        if trainer.guide is None or trainer.config.algorithm.guidance == "off" or trainer.config.warm_start == "off":
            return False
        room = progress.gold is not None and progress.last is not None and progress.last < (1 - ROOM) * progress.gold
        return room and progress.lessons < MOST

    async def teach(self) -> None:
        """Show solutions until that no longer helps; keep the best weights, which may be those of before."""
        trainer, progress = self._trainer, self._trainer.progress
        progress.lessons += 1
        shown, watched = self._rows()
        guide = trainer.guide
        assert guide is not None
        lessons = [lesson for row in shown if (lesson := await guide.lesson(row)) is not None]
        if len(lessons) < FEWEST:
            return
        seed = f"{trainer.config.seed} lesson {progress.step}"
        teacher = Teacher(trainer.learner, [lesson.sequence for lesson in lessons], trainer.config.sft, seed)
        before = best = await self._earned(watched)
        own = kept = _copied(trained_weights(trainer.learner.policy))
        since, began = 0, time.monotonic()
        seconds = SECONDS[trainer.learner.policy.device.type]
        gold = fmean(lesson.reward for lesson in lessons)
        for _ in range(LOOKS):
            await trainer.interrupts.in_thread(teacher.teach, STEPS, self._tell, trainer.interrupts.giving_up)
            await trainer.push()
            now = await self._earned(watched)
            since += 1
            if now > best:
                best, kept, since = now, _copied(trained_weights(trainer.learner.policy)), 0
            if best >= (1 - ROOM) * gold or since >= PATIENCE or time.monotonic() - began > seconds:
                break
        helped = best - before > HELPED * abs(gold)
        await self._keep(kept if helped else own)
        trainer.emit(
            "taught",
            step=progress.step,
            rows=len(lessons),
            steps=teacher.steps,
            before=before,
            after=best,
            kept=helped,
            message=_words(before, best, helped, teacher.steps, len(lessons)),
        )

    async def _keep(self, weights: dict[str, Tensor]) -> None:
        trainer = self._trainer
        await trainer.interrupts.in_thread(load_weights, trainer.learner.policy, weights)
        await trainer.push()

    def _rows(self) -> tuple[list[Example], list[Example]]:
        """Training rows to show, and some that are not shown."""
        rows = list(self._trainer.stream.examples)
        random.Random(f"{self._trainer.config.seed} taught").shuffle(rows)
        watched = min(WATCHED, len(rows) // 5)
        return rows[watched:], rows[:watched]

    async def _earned(self, rows: list[Example]) -> float:
        trainer = self._trainer
        draw = Draw("taught", trainer.progress.step, 1, 0.0)
        groups = await trainer.sampler.sample(rows, draw, trainer.saw_group)
        return fmean([r.reward for group in groups for r in group if r.reward is not None] or [0.0])

    def _tell(self, step: int, steps: int, loss: float) -> None:
        self._trainer.tell("teaching", step=step, steps=steps, loss=loss)


def _copied(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in weights.items()}


def _words(before: float, after: float, helped: bool, steps: int, rows: int) -> str:
    looked = f"{rows} solutions were shown for {steps} steps"
    if helped:
        return f"Evaluations got no better, so {looked}: rows that were not shown earn {before:.2f} → {after:.2f}."
    return f"Evaluations got no better, so {looked}; that did not help on rows that were not shown ({before:.2f})."
