"""Supervised refresh: a run that gets no further learns from solutions of most training rows, measured on the others.

Some tasks are found by comparing samples only after very long, and learned from solutions in a minute: which letter
stands before the right option. So when evaluations stop getting better far below what solutions earn, the run learns
from solutions for as long as that helps on rows it is *not* shown. If it does not help, the weights stay as they were.
"""

from __future__ import annotations

import random
import time
from statistics import fmean
from typing import TYPE_CHECKING

from torch import Tensor

from benchmax import metrics
from benchmax.envs.types import Example
from benchmax.trainer.checkpoint import load_weights
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.warm_start.supervised_steps import SupervisedSteps

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

MISSING_SHARE = 0.1
"""Share of what solutions earn that must be missing."""
MAX_LESSONS = 2
"""Times in one run."""
STEPS_BETWEEN = 8
"""Between two measurements."""
MAX_MEASUREMENTS = 20
"""At most."""
MAX_SECONDS = {"cpu": 120.0, "cuda": 60.0}
"""At most, by device. A run with less time left is not taught: it would end late."""
PATIENCE = 13
"""Measurements without a better one, after which it ends: what is learned late comes suddenly."""
MEASURED_ROWS = 32
"""Training rows that are not shown, on which the effect is measured."""
MIN_SOLUTIONS = 16
"""Solutions below which there is nothing to teach."""
MIN_GAIN = 0.05
"""Share of what solutions earn that must be gained for the new weights to stay."""


def is_due(trainer: Trainer) -> bool:
    """Whether a run that is stuck is to be taught."""
    progress = trainer.progress
    if trainer.solver is None or trainer.config.algorithm.guidance == "off" or trainer.config.warm_start == "off":
        return False
    gold, last = progress.gold, progress.last
    room = gold is not None and last is not None and last < (1 - MISSING_SHARE) * gold
    return room and progress.lessons < MAX_LESSONS and trainer.seconds_left > _most_seconds(trainer)


def _most_seconds(trainer: Trainer) -> float:
    return MAX_SECONDS[trainer.learner.policy.device.type]


async def teach(trainer: Trainer) -> None:
    """Show solutions until that no longer helps; keep the best weights, which may be the old ones.

    A lesson that is interrupted leaves the weights as they were.
    """
    shown, measured = _split_rows(trainer)
    assert trainer.solver is not None
    solutions = await trainer.solver.solve_all(shown)
    if len(solutions) < MIN_SOLUTIONS:
        return
    seed = f"{trainer.config.seed} lesson {trainer.progress.step}"
    steps = SupervisedSteps(trainer.learner, [each.sequence for each in solutions], trainer.config.sft, seed)
    gold = fmean(each.reward for each in solutions)
    before, enough = await _measure(trainer, measured), (1 - MISSING_SHARE) * gold
    if before >= enough:
        steps_done = [line["values"] for line in read_metrics(trainer.run.path) if line["split"] == "train"]
        sampled = steps_done[-1].get(metrics.REWARD) if steps_done else None
        trainer.emit("note", message=nothing_to_teach(before, len(measured), sampled, enough))
        return
    old = trainer.learner.policy.copy_weights()
    try:
        after, weights = await _until_no_better(trainer, steps, measured, before, enough)
    except BaseException:
        load_weights(trainer.learner.policy, old)
        raise
    helped = after - before > MIN_GAIN * abs(gold)
    await trainer.interrupts.in_thread(load_weights, trainer.learner.policy, weights if helped else old)
    await trainer.push()
    trainer.emit(
        "taught", step=trainer.progress.step, rows=len(solutions), steps=steps.done, before=before, after=after,
        kept=helped, message=_message(before, after, helped, steps.done, len(solutions)),
    )  # fmt: skip


async def _until_no_better(
    trainer: Trainer, steps: SupervisedSteps, measured: list[Example], best: float, enough: float
) -> tuple[float, dict[str, Tensor]]:
    """Take steps and measure in turn; returns the best mean reward and its weights, empty for none better."""
    weights, since, began = dict[str, Tensor](), 0, time.monotonic()

    def on_step(step: int, steps: int, loss: float) -> None:
        trainer.notify("teaching", step=step, steps=steps, loss=loss)

    for _ in range(MAX_MEASUREMENTS):
        await trainer.interrupts.in_thread(steps.run, STEPS_BETWEEN, on_step, trainer.interrupts.giving_up)
        await trainer.push()
        now = await _measure(trainer, measured)
        since += 1
        if now > best:
            best, weights, since = now, trainer.learner.policy.copy_weights(), 0
        if best >= enough or since >= PATIENCE or time.monotonic() - began > _most_seconds(trainer):
            break
    return best, weights


def _split_rows(trainer: Trainer) -> tuple[list[Example], list[Example]]:
    """Training rows to show, and some that are not shown."""
    rows = list(trainer.stream.examples)
    random.Random(f"{trainer.config.seed} taught").shuffle(rows)
    measured = min(MEASURED_ROWS, len(rows) // 5)
    return rows[measured:], rows[:measured]


async def _measure(trainer: Trainer, rows: list[Example]) -> float:
    """The mean reward of these rows with the current weights."""
    draw = Draw("taught", trainer.progress.step, 1, 0.0)
    groups = await trainer.sampler.sample(rows, draw, trainer.on_group)
    return fmean([r.reward for group in groups for r in group if r.reward is not None] or [0.0])


def _message(before: float, after: float, helped: bool, steps: int, rows: int) -> str:
    shown = f"{rows} solutions were shown for {steps} steps"
    if helped:
        return f"Evaluations got no better, so {shown}: rows that were not shown earn {before:.2f} → {after:.2f}."
    return f"Evaluations got no better, so {shown}. Rows that were not shown still earn {before:.2f}, so it was undone."


def nothing_to_teach(earned: float, rows: int, sampled: float | None, enough: float) -> str:
    """Why no solutions are shown. Greedy answers say little of rows whose samples earn less than `enough`."""
    measured = f"greedy answers to {rows} training rows earn {earned:.2f} already"
    if sampled is None or sampled >= enough:
        return f"Evaluations got no better, though {measured}: what is missing is more rows."
    return (
        f"Evaluations got no better, and no solutions were shown: {measured}, though samples of the last step "
        f"earned {sampled:.2f}."
    )
