"""Before the first step: is there signal, and if not, which help is the cheapest?

evaluate ─▶ sample the first prompts ─▶ signal? ── yes ──▶ these are the first step's samples
                                          │ no
                                          ▼
                        solutions (gold) or the model's own answers with the solution in sight (hint)
                                          │
                                          ▼
                   { a few supervised steps, a dose ─▶ sample again } until there is signal ─▶ evaluate
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from benchmax import metrics
from benchmax.doctor.first_samples import MEASURED, measure_parts, rows_by_part
from benchmax.doctor.learning_signal import Signal
from benchmax.envs.types import Example
from benchmax.rollouts.record import DEMONSTRATION, Rollout
from benchmax.trainer.config.chosen_settings import ChosenSetting, fit_to_size, fit_to_solutions
from benchmax.trainer.display.plan import plan
from benchmax.trainer.learning.batch import TokenSequence, sequence_of
from benchmax.trainer.rundir import write_config
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.warm_start.hints import hinted_solutions
from benchmax.trainer.warm_start.solutions import Solution, Solver
from benchmax.trainer.warm_start.supervised_steps import SupervisedSteps, train_epochs

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

DOSE_STEPS = 4
"""Supervised steps between two looks at the model's own samples."""
NO_SOLUTION = (
    "No solution was found in {seconds:.0f} s that earns more: write gold_completion or demonstrate, "
    "or give chats with warm_start = FILE."
)
NO_REWARD = "No sample got a reward, so nothing shows a solution: correct the reward or its judge first."
SEARCH_SHARE = 1 / 6
"""Share of `limits.seconds` in which solutions are looked for: the rest is for training."""
MIN_SOLUTIONS = 8
"""Solutions below which there is nothing to show."""
ENOUGH_SPREAD = 0.5
"""Share of groups with signal from which on the model goes on by itself."""
ENOUGH_SHARE = 0.1
"""Share of what the solutions earn that the samples must earn on average, too."""
NEARLY_ALL_SHARE = 0.75
"""The same for samples that hardly differ any more."""


@dataclass(slots=True)
class WarmStartRecord:
    """What a warm start did, as the event that records it."""

    how: str
    """`off`, `none`, `gold`, `hint` or `file`."""
    why: str
    rows: int = 0
    steps: int = 0
    doses: int = 0
    before: float | None = None
    """Mean held-out reward before it."""
    after: float | None = None
    """The same after it."""
    sources: dict[str, int] = field(default_factory=dict)
    """How many solutions came from where."""


class WarmStart:
    """What happens before the first step of a new run."""

    def __init__(self, trainer: Trainer, solver: Solver, file: Sequence[TokenSequence] = ()) -> None:
        self.trainer, self.solver, self.file = trainer, solver, list(file)
        self.config = trainer.config
        self._sample_seconds = 0.0

    async def run(self) -> None:
        """Measure the signal, help if that is needed, and measure again; all of it recorded."""
        trainer = self.trainer
        await self._fit_lengths()
        evaluated = await trainer.evaluate() if trainer.held_out else {}
        groups = self._fit_step(await self._sample_first())
        known = await self.solver.known(trainer.learner.mean_probability)
        signal = await measure_parts(self.solver.host, groups, known)
        trainer.emit("signal", **signal.to_dict())
        trainer.progress.gold = signal.gold
        record = await self._help(signal, groups)
        record.before = evaluated.get(metrics.REWARD)
        if record.steps and trainer.held_out:
            record.after = await self._evaluate()
        trainer.emit("warm_start", **asdict(record))
        if not trainer.first_groups:
            trainer.first_groups = await self._sample_first()
        seconds = self._sample_seconds, evaluated.get(metrics.SAMPLE_SECONDS, 0.0)
        made = await trainer.interrupts.in_thread(plan, trainer, trainer.first_groups, *seconds)
        trainer.emit("plan", **asdict(made))

    # Settings that follow from the environment

    async def _fit_lengths(self) -> None:
        """Allow rollouts as long as known solutions need."""
        rows = [row for own in rows_by_part(self.solver.host, self.solver.rows).values() for row in own[:MEASURED]]
        self._on_tried("gold", len(rows), 0, 0)
        shown = [each.rollout for each in await self.solver.solve_all(rows)]
        device = self.trainer.learner.policy.device.type
        self._record_chosen(fit_to_solutions(self.config, self.solver.host.env, shown, device))

    def _fit_step(self, groups: list[list[Rollout]]) -> list[list[Rollout]]:
        """Make a step as large as this machine has time for; returns the groups that are left of the first one."""
        learner = self.trainer.learner
        tokens = learner.packed_tokens(sequence_of(rollout) for group in groups for rollout in group)
        self._record_chosen(fit_to_size(self.config, tokens, learner.policy.device.type))
        return groups[: self.config.rollouts.prompts_per_step]

    def _record_chosen(self, chosen: list[ChosenSetting]) -> None:
        if chosen:
            settings = [each._asdict() for each in chosen]
            write_config(self.trainer.run.path, self.config)
            self.trainer.chosen += settings
            self.trainer.emit("chosen", settings=settings)

    # Measuring

    async def _sample_first(self) -> list[list[Rollout]]:
        """The samples of the first step, with the current weights; the stream of prompts does not advance."""
        trainer, rollouts = self.trainer, self.config.rollouts
        before = trainer.stream.state()
        examples = trainer.stream.take(rollouts.prompts_per_step)
        trainer.stream.restore(before)
        draw = Draw("train", 0, rollouts.group_size, rollouts.temperature)
        began = time.monotonic()
        groups = await trainer.sampler.sample(examples, draw, trainer.on_group)
        self._sample_seconds = time.monotonic() - began
        return groups

    async def _evaluate(self) -> float | None:
        """Play the held-out rows after a warm start; what they earn is what training has to beat."""
        trainer = self.trainer
        values, groups = await trainer.play_held_out("warm_start")
        trainer.run.write_rollouts("warm_eval", 0, (rollout for group in groups for rollout in group))
        trainer.on_event("metrics", trainer.run.log_metrics(0, "warm_start", values))
        trainer.progress.begin_at(trainer.counted(values))
        return values.get(metrics.REWARD)

    # Helping

    async def _help(self, signal: Signal, groups: list[list[Rollout]]) -> WarmStartRecord:
        """Show the file's rows, or solutions, or answers made with a hint; nothing where there is signal."""
        wanted = self.config.warm_start
        if self.file:
            return await self._show_file()
        if wanted == "off" or (wanted == "auto" and signal.ready):
            self.trainer.first_groups = groups
            return WarmStartRecord("off" if wanted == "off" else "none", signal.forecast)
        if not any(rollout.reward is not None for group in groups for rollout in group):
            self.trainer.first_groups = groups
            return WarmStartRecord("none", NO_REWARD)
        began = time.monotonic()
        how, solutions = await self._search(signal, began + SEARCH_SHARE * (self.config.limits.seconds or math.inf))
        if not self._worth(solutions, signal):
            self.trainer.first_groups = groups
            unsolved = NO_SOLUTION.format(seconds=time.monotonic() - began)
            return WarmStartRecord("none", f"{signal.forecast} {unsolved}")
        shown = (replace(each.rollout, split=DEMONSTRATION, step=0) for each in solutions)
        self.trainer.run.write_rollouts("warm_start", 0, shown)
        record = WarmStartRecord(how, signal.forecast, rows=len(solutions))
        record.sources = dict(Counter(each.source for each in solutions))
        record.doses, record.steps = await self._show(solutions)
        return record

    async def _show_file(self) -> WarmStartRecord:
        trainer, config = self.trainer, self.config
        learner, abort = trainer.learner, trainer.interrupts.giving_up
        work = partial(
            train_epochs, learner, self.file, config.sft, seed=config.seed, on_step=self._on_step, abort=abort
        )
        steps = len(await trainer.interrupts.in_thread(work))
        await trainer.push()
        why = f"the rows of {Path(config.sft.data or config.warm_start).name}"
        return WarmStartRecord("file", why, rows=len(self.file), steps=steps, doses=config.sft.epochs)

    async def _search(self, signal: Signal, until: float) -> tuple[str, list[Solution]]:
        """Solutions, and whether they are `gold` or made with a `hint`; none is looked for any more after `until`.

        Of a composed environment, rows of parts that need help are solved, or of all when none does.
        """
        wanted, parts = self.config.warm_start, signal.unready or {*signal.parts, ""}
        rows = [row for row in self.solver.rows if self.solver.host.part_of(row) in parts]
        random.Random(f"{self.config.seed} warm start").shuffle(rows)
        rows = rows[: self.config.sft.rows]
        solutions = await self._solutions(rows, until) if wanted in ("auto", "gold") else []
        if wanted == "gold" or self._worth(solutions, signal):
            return "gold", solutions
        on_tried = partial(self._on_tried, "hint", len(rows))
        on_tried(0, 0)
        return "hint", await hinted_solutions(self.solver, self.trainer, rows, until, on_tried)

    def _on_tried(self, how: str, of: int, rows: int, found: int) -> None:
        self.trainer.notify("solving", how=how, of=of, rows=rows, found=found)

    async def _solutions(self, rows: Sequence[Example], until: float) -> list[Solution]:
        found: list[Solution] = []
        self._on_tried("gold", len(rows), 0, 0)
        for at, row in enumerate(rows):
            if time.monotonic() >= until:
                break
            if (solution := await self.solver.solve(row)) is not None:
                found.append(solution)
            elif not found and at >= MIN_SOLUTIONS:
                break
            self._on_tried("gold", len(rows), at + 1, len(found))
        return found

    def _worth(self, solutions: Sequence[Solution], signal: Signal) -> bool:
        """Whether there are enough of them, and they earn more than the model does by itself."""
        if len(solutions) < MIN_SOLUTIONS:
            return False
        paid = fmean(each.reward for each in solutions)
        helped = [signal.parts[part] for part in sorted(signal.unready) if part in signal.parts] or [signal]
        floor = fmean(each.floor for each in helped)
        reward = fmean(each.floor if each.reward is None else each.reward for each in helped)
        scale = max(paid, signal.gold or paid) - floor
        return paid > reward + 0.1 * scale

    async def _show(self, solutions: Sequence[Solution]) -> tuple[int, int]:
        """Supervised steps until the model's own samples have signal; returns the number of doses and of steps."""
        trainer, config = self.trainer, self.config
        sequences = [each.sequence for each in solutions]
        steps = SupervisedSteps(trainer.learner, sequences, config.sft, f"{config.seed} warm start")
        gold = fmean(each.reward for each in solutions)
        known = await self.solver.known()
        for dose in range(1, config.sft.doses + 1):
            await trainer.interrupts.in_thread(steps.run, DOSE_STEPS, self._on_step, trainer.interrupts.giving_up)
            await trainer.push()
            groups = await self._sample_first()
            signal = await measure_parts(self.solver.host, groups, known)
            describe_dose(signal, gold)
            trainer.emit("dose", dose=dose, **signal.to_dict())
            if all(_can_go_on(each, gold) for each in (signal.parts or {"": signal}).values()):
                break
        trainer.first_groups = groups
        return dose, steps.done

    def _on_step(self, step: int, steps: int, loss: float) -> None:
        self.trainer.notify("sft", step=step, steps=steps, loss=loss)


def describe_dose(signal: Signal, gold: float) -> None:
    """Replace the forecast, which is for a model that was shown nothing, by what the dose did."""
    for part in signal.parts.values():
        describe_dose(part, gold)
    if signal.parts:
        signal.take_words()
    elif signal.reward is not None:
        signal.forecast = _after_dose(signal, gold)
        signal.advice = ""  # it was to show solutions, which is what a dose does


def _after_dose(signal: Signal, gold: float) -> str:
    if _share(signal, gold) >= NEARLY_ALL_SHARE:
        return f"Its samples earn {signal.reward:.2f} of {gold:.2f}: little is left to learn on these rows."
    if not _can_go_on(signal, gold):
        with_signal = f"{signal.spread:.0%}" if signal.spread else "None"
        return f"{with_signal} of {signal.groups} groups had signal: it needs more solutions."
    return signal.forecast


def _share(signal: Signal, gold: float) -> float:
    """What samples earn as a share of what solutions do, above nonsense."""
    earned = signal.floor if signal.reward is None else signal.reward
    return (earned - signal.floor) / max(1e-9, gold - signal.floor)


def _can_go_on(signal: Signal, gold: float) -> bool:
    """Whether samples have enough signal to learn from without solutions."""
    if not signal.groups:  # a part that has no prompt among the first samples
        return True
    share = _share(signal, gold)
    return (signal.spread >= ENOUGH_SPREAD and share >= ENOUGH_SHARE) or share >= NEARLY_ALL_SHARE
