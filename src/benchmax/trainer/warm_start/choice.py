"""Before the first step: is there signal, and if not, which help is the cheapest?

evaluate ─▶ sample the first prompts ─▶ signal? ── yes ──▶ these are the first step's samples
                                          │ no
                                          ▼
                        solutions (gold) or the model's own answers with the solution in sight (hint)
                                          │
                                          ▼
                   { a dose of supervised steps ─▶ sample again } until there is signal ─▶ evaluate
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from benchmax import metrics
from benchmax.doctor.first_samples import MEASURED
from benchmax.doctor.learning_signal import Known, Signal, measure
from benchmax.envs.types import Example
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config.fitting import Chosen, fit_to_size, fit_to_solutions
from benchmax.trainer.display.plan import plan
from benchmax.trainer.learning.batch import Batch, TokenSequence, sequence_of
from benchmax.trainer.rundir import write_config
from benchmax.trainer.sampler import Draw
from benchmax.trainer.warm_start.hints import hinted_lessons
from benchmax.trainer.warm_start.lessons import Guide, Lesson
from benchmax.trainer.warm_start.teaching import Teacher, warm_start

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

DOSE_STEPS = 4
"""Supervised steps between two looks at the model's own samples."""
UNSOLVED = (
    "No solution was found that earns more: write gold_completion or demonstrate, or give chats with warm_start = FILE."
)
FEWEST = 8
"""Solutions below which there is nothing to show."""
ENOUGH_SPREAD = 0.5
"""Share of groups with signal from which on the model goes on by itself."""
ENOUGH_SHARE = 0.1
"""Share of what the solutions earn that the samples must earn on average, too."""
NEARLY_ALL = 0.75
"""The same for samples that hardly differ any more."""


@dataclass(slots=True)
class Record:
    """What was done, as it is kept and shown."""

    how: str
    """`off`, `none`, `gold`, `hint` or `file`."""
    why: str
    rows: int = 0
    steps: int = 0
    doses: int = 0
    before: float | None = None
    """Mean held-out reward of the model as it came."""
    after: float | None = None
    """The same after the warm start."""
    sources: dict[str, int] = field(default_factory=dict)
    """How many solutions came from where."""


class Beginning:
    """What happens before the first step of a new run."""

    def __init__(self, trainer: Trainer, guide: Guide, file: Sequence[TokenSequence] = ()) -> None:
        self.trainer, self.guide, self.file = trainer, guide, list(file)
        self.config = trainer.config
        self._steps = 0
        self._sample_seconds = 0.0

    async def run(self) -> None:
        """Look, help if that is needed, and look again; all of it recorded."""
        trainer, wanted = self.trainer, self.config.warm_start
        await self._fit()
        evaluated = await trainer.evaluate() if trainer.held_out else {}
        before = evaluated.get(metrics.REWARD)
        groups = self._fit_step(await self._sample_first())
        signal = await self._measure(groups)
        trainer.emit("signal", **signal.to_dict())
        trainer.progress.gold = signal.gold
        if self.file:
            record = await self._from_file()
        elif wanted == "off" or (wanted == "auto" and signal.ready):
            trainer.first_groups = groups
            record = Record("off" if wanted == "off" else "none", signal.forecast)
        else:
            record = await self._help(signal, groups, wanted)
        record.before = before
        if record.steps and trainer.held_out:
            record.after = await self._evaluate()
        trainer.emit("warm_start", **asdict(record))
        if not trainer.first_groups:
            trainer.first_groups = await self._sample_first()
        seconds = self._sample_seconds, evaluated.get(metrics.SAMPLE_SECONDS, 0.0)
        made = await trainer.interrupts.in_thread(plan, trainer, trainer.first_groups, *seconds)
        trainer.emit("plan", **made.to_dict())

    async def _fit(self) -> None:
        """Let rollouts be as long as known solutions ask for."""
        shown = [lesson.rollout for row in self.guide.rows[:MEASURED] if (lesson := await self.guide.lesson(row))]
        device = self.trainer.learner.policy.device.type
        self._say(fit_to_solutions(self.config, self.guide.host.env, shown, device))

    def _fit_step(self, groups: list[list[Rollout]]) -> list[list[Rollout]]:
        """Let a step be as large as this machine has time for; gives the groups that are left of its first."""
        learner = self.trainer.learner
        sequences = [sequence_of(rollout) for group in groups for rollout in group]
        packed = learner.micro_batches(Batch.of(sequences)) if any(len(each.targets) for each in sequences) else []
        tokens = sum(micro.input_ids.numel() for micro in packed)
        self._say(fit_to_size(self.config, tokens, learner.policy.device.type))
        return groups[: self.config.rollouts.prompts_per_step]

    def _say(self, chosen: list[Chosen]) -> None:
        if chosen:
            write_config(self.trainer.run.path, self.config)
            self.trainer.chosen += [each._asdict() for each in chosen]
            self.trainer.emit("chosen", settings=[each._asdict() for each in chosen])

    async def _measure(self, groups: Sequence[Sequence[Rollout]], known: Known | None = None) -> Signal:
        tools = bool((await self.guide.host.toolbox()).tools)
        if known is None:
            known = await self.guide.known(self.trainer.learner.chance)
        return measure(groups, known, tools=tools)

    async def _from_file(self) -> Record:
        trainer, config = self.trainer, self.config

        def work() -> int:
            return len(
                warm_start(
                    trainer.learner, self.file, config.sft, seed=config.seed, on_step=self._tell,
                    abort=trainer.interrupts.giving_up,
                )
            )  # fmt: skip

        steps = await trainer.interrupts.in_thread(work)
        await trainer.push()
        path = config.sft.data or config.warm_start
        return Record(
            "file", f"the rows of {Path(path).name}", rows=len(self.file), steps=steps, doses=config.sft.epochs
        )

    async def _help(self, signal: Signal, groups: list[list[Rollout]], wanted: str) -> Record:
        """Solutions, or the model's own answers with the solution in sight; what earns too little is no help."""
        lessons = await self._solutions() if wanted in ("auto", "gold") else []
        how = "gold"
        if not self._worth(lessons, signal) and wanted in ("auto", "hint"):
            lessons, how = await hinted_lessons(self.guide, self.trainer, self._rows()), "hint"
        if not self._worth(lessons, signal):
            self.trainer.first_groups = groups
            return Record("none", f"{signal.forecast} {UNSOLVED}")
        record = Record(how, signal.forecast, rows=len(lessons))
        for lesson in lessons:
            record.sources[lesson.source] = record.sources.get(lesson.source, 0) + 1
        self.trainer.run.write_rollouts("warm_start", 0, (lesson.rollout for lesson in lessons))
        record.doses = await self._doses(lessons)
        record.steps = self._steps
        return record

    def _rows(self) -> list[Example]:
        rows = list(self.guide.rows)
        random.Random(f"{self.config.seed} warm start").shuffle(rows)
        return rows[: self.config.sft.rows]

    async def _solutions(self) -> list[Lesson]:
        found: list[Lesson] = []
        rows = self._rows()
        for at, row in enumerate(rows):
            if (lesson := await self.guide.lesson(row)) is not None:
                found.append(lesson)
            elif not found and at >= FEWEST:
                break
            self.trainer.tell("solving", rows=at + 1, of=len(rows), found=len(found))
        return found

    def _worth(self, lessons: Sequence[Lesson], signal: Signal) -> bool:
        """Whether there are enough of them, and they earn more than the model does by itself."""
        if len(lessons) < FEWEST:
            return False
        paid = fmean(lesson.reward for lesson in lessons)
        scale = max(paid, signal.gold or paid) - signal.floor
        return paid > (signal.reward or signal.floor) + 0.1 * scale

    async def _doses(self, lessons: Sequence[Lesson]) -> int:
        """Supervised steps until the model's own samples have signal; gives the number of doses."""
        trainer, config = self.trainer, self.config
        sequences = [lesson.sequence for lesson in lessons]
        teacher = Teacher(trainer.learner, sequences, config.sft, f"{config.seed} warm start")
        gold = fmean(lesson.reward for lesson in lessons)
        known = await self.guide.known()
        for dose in range(1, config.sft.doses + 1):
            await trainer.interrupts.in_thread(teacher.teach, DOSE_STEPS, self._tell, trainer.interrupts.giving_up)
            await trainer.push()
            groups = await self._sample_first()
            signal = await self._measure(groups, known)
            trainer.emit("dose", dose=dose, **signal.to_dict())
            share = ((signal.reward or signal.floor) - signal.floor) / max(1e-9, gold - signal.floor)
            if (signal.spread >= ENOUGH_SPREAD and share >= ENOUGH_SHARE) or share >= NEARLY_ALL:
                break
        trainer.first_groups = groups
        self._steps = teacher.steps
        return dose

    async def _sample_first(self) -> list[list[Rollout]]:
        """The samples of the first step, with the weights of now; nothing is used up by it."""
        trainer, rollouts = self.trainer, self.config.rollouts
        before = trainer.stream.state()
        examples = trainer.stream.take(rollouts.prompts_per_step)
        trainer.stream.restore(before)
        draw = Draw("train", 0, rollouts.group_size, rollouts.temperature)
        began = time.monotonic()
        groups = await trainer.sampler.sample(examples, draw, trainer.saw_group)
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

    def _tell(self, step: int, steps: int, loss: float) -> None:
        self.trainer.tell("sft", step=step, steps=steps, loss=loss)
