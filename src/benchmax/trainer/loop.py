"""The training loop.

    evaluate ─▶ { pick prompts ─▶ sample groups ─▶ replace those without signal ─▶ update ─▶ push weights } × steps
        ▲                                                                                         │
        └────────────────────── every `eval.every` steps, and after the last ◀────────────────────┘

What happened is in the run directory before the next step begins. A step is all or nothing: one that is cut off leaves
the weights as they were, and a resumed run does it again with the same draws. What happens before the first step is in
`warm_start`; what happens when a run goes wrong, in `watch`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from benchmax import metrics
from benchmax.envs.types import Example
from benchmax.errors import DatasetError, RewardError
from benchmax.rollouts.log import read_rollouts
from benchmax.rollouts.record import Rollout
from benchmax.trainer.backend import OnEvent
from benchmax.trainer.checkpoint import (
    Checkpoint,
    go_back,
    mark_best,
    prune,
    random_states,
    save_checkpoint,
    set_random,
)
from benchmax.trainer.config import TrainConfig
from benchmax.trainer.display.summary import summarise
from benchmax.trainer.gathering import Gatherer
from benchmax.trainer.interrupts import Interrupts
from benchmax.trainer.learning.gpu import patiently
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.metrics import response_tokens, rollout_metrics
from benchmax.trainer.progress import Outcome, Progress
from benchmax.trainer.prompts import PromptStream
from benchmax.trainer.rundir import RunDir, read_metrics
from benchmax.trainer.sampler import Draw, Sampler
from benchmax.trainer.warm_start.lessons import Guide
from benchmax.trainer.warm_start.refresher import Refresher
from benchmax.trainer.watch.alarms import HIGH_LR, Alert, Watchdogs, most_common_error
from benchmax.trainer.watch.cooling import Cooler
from benchmax.trainer.watch.mending import Mender

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
UNSCORED_STEPS = 5
"""Steps without a single reward, from the first on, after which a run is given up; one that is resumed may try as
many again."""
Begin = Callable[[], Coroutine[Any, Any, None]]
"""Done before the first step of a new run."""


class Trainer:
    """Runs the loop over a run directory, a learner and a sampler."""

    def __init__(
        self,
        run: RunDir,
        learner: Learner,
        sampler: Sampler,
        train: Sequence[Example],
        held_out: Sequence[Example] = (),
        on_event: OnEvent = lambda kind, data: None,
        guide: Guide | None = None,
        grace: float | None = None,
    ) -> None:
        if not train:
            raise DatasetError("There are no training rows. Give data.train a file with at least one usable row.")
        self.run = run
        self.config: TrainConfig = run.config
        self.learner = learner
        self.sampler = sampler
        self.held_out = list(held_out)[: self.config.eval.rows]
        self.on_event = on_event
        self.guide = guide
        self.interrupts = Interrupts(lambda seconds: self.on_event("stopping", {"seconds": seconds}), grace)
        self.stream = PromptStream(train, self.config.seed, self.config.data.curriculum)
        self.watchdogs = Watchdogs(self.config.watch)
        self.mender = Mender(self)
        self.refresher = Refresher(self)
        self.cooler = Cooler(self)
        self.gatherer = Gatherer(self)
        self.progress = Progress()
        self.outcome = Outcome(run.path, "steps", 0)
        self.chosen: list[dict[str, Any]] = []
        """Settings nobody gave, with the reasons for what they became."""
        self.first_groups: list[list[Rollout]] = []
        """What was sampled for the first step before it began."""
        self._saved: tuple[int, int] | None = None
        """Step and last evaluation in the newest checkpoint."""
        self._running_on: asyncio.AbstractEventLoop | None = None
        self.scored = False
        self._first = 0
        """Steps done when this process began."""
        self._began = time.monotonic()

    def interrupt(self) -> None:
        """Finish the step in flight if that is quick, save, and end."""
        self.interrupts.stop()

    # Saving and going back

    def restore(self, checkpoint: Checkpoint) -> int:
        """Go on from a checkpoint; later records are moved aside, and their number given."""
        state = checkpoint.restore(self.learner.policy, self.learner.optimizer)
        self.progress = Progress.from_dict(state["progress"])
        self.stream.restore(state["stream"])
        self.watchdogs.restore(state["watchdogs"])
        self.sampler.restore(state.get("sampler", {}))  # runs of before have none, nor a learner's
        self.learner.restore(state.get("learner", {}))
        self._saved = (self.progress.step, self.progress.evaluated)
        # In this order a kill between any two is made good by the next resume.
        self.run.set_status("running", checkpoint.step)
        go_back(checkpoint.path.parent, checkpoint.step, self.progress.best_step)
        self._mark_best()
        return self.run.rewind(checkpoint.step, evaluated=self.progress.evaluated == checkpoint.step)

    def save(self, *, again: bool = False) -> None:
        """Write the checkpoint of the current step, unless it is there; `again` in any case."""
        progress, folder = self.progress, self.run.path / "checkpoints"
        if self._saved == (progress.step, progress.evaluated) and not again:
            return
        progress.seconds, self._began = self._seconds(), time.monotonic()
        state = {
            "progress": progress.to_dict(),
            "stream": self.stream.state(),
            "watchdogs": self.watchdogs.state(),
            "sampler": self.sampler.state(),
            "learner": self.learner.state(),
        }
        self.run.metrics.sync()
        saved = save_checkpoint(folder, progress.step, self.learner.policy, self.learner.optimizer, state)
        self._mark_best()
        self._saved = (progress.step, progress.evaluated)
        prune(folder, self.config.checkpoint.keep_last, self.config.checkpoint.keep_best)
        self.emit("checkpoint", step=progress.step, path=str(saved.path.relative_to(self.run.path)))

    def _mark_best(self) -> None:
        """Called once the checkpoint of this step is there. One that is not kept is not named either."""
        if self.config.checkpoint.keep_best and self.progress.at_best:
            mark_best(self.run.path / "checkpoints", self.progress.step)

    # Running

    async def train(self, begin: Begin | None = None) -> Outcome:
        """Train to the end, whichever comes first."""
        self._began, self._first = time.monotonic(), self.progress.step
        self._running_on = asyncio.get_running_loop()
        heartbeat = asyncio.create_task(self._beat())
        self.run.set_status("running", self.progress.step)
        self.emit("started", step=self.progress.step)
        self._prepare_watch()
        if begin is not None and self.chosen:
            self.emit("chosen", settings=list(self.chosen))
        doing = self.interrupts.unless_stopped
        try:
            await doing(self.push())
            begun = begin is None or await doing(self._begin(begin))
            reason = await self._loop()
            await self._finish(reason, keep=begun)
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            heartbeat.cancel()
            self.interrupts.close()
        return self.outcome

    async def _begin(self, begin: Begin) -> None:
        """Whole or not at all: a run that is stopped in it begins again."""
        await begin()
        self.save()

    async def _loop(self) -> str:
        doing = self.interrupts.unless_stopped
        while True:
            step = self.progress.step
            if self._due(self.config.eval.every) and not self.interrupts.stopped:
                await doing(self.evaluate())
            new_best = self.config.checkpoint.keep_best and step > 0 and self.progress.at_best
            if (step % self.config.checkpoint.every == 0 or new_best) and not self.interrupts.stopped:
                self.save()
            if not self.scored and step - self._first >= UNSCORED_STEPS:
                self._refuse_unscored()
            reason = self._reason_to_end()
            if reason:
                return reason
            if self.mender.wanted:
                if not await doing(self.mender.mend()):
                    return "interrupted"
                if self.mender.at_end:
                    return "collapsed"
                continue
            if self.progress.is_stuck and not await doing(self._get_on()):
                return "interrupted"
            if not await doing(self.step()):
                return "interrupted"

    async def _get_on(self) -> None:
        """What is done about evaluations that get no better: solutions are shown, and steps get smaller."""
        self.progress.idle = 0
        if self.refresher.is_due:
            await self.refresher.teach()
        if self.cooler.is_due:
            self.cooler.cool()

    async def _finish(self, reason: str, keep: bool) -> None:
        doing, progress = self.interrupts.unless_stopped, self.progress
        if reason not in ("interrupted", "collapsed") and self.held_out and progress.evaluated != progress.step:
            reason = reason if await doing(self.evaluate()) else "interrupted"
        if keep:
            self.save()
        if reason != "interrupted":
            self._refuse_unscored()
        lines = read_metrics(self.run.path)
        evals = [line["values"] for line in lines if line["split"] == "eval"] or [{}]
        self.outcome = Outcome(self.run.path, reason, progress.step, evals[0], evals[-1], self._seconds())
        self.outcome.learned = any(
            line["values"].get(metrics.GROUPS_USED) or line["values"].get(metrics.GROUPS_GUIDED) for line in lines
        )
        self.outcome.best, self.outcome.best_step = progress.best, progress.best_step
        self.outcome.message = self.mender.diagnosis if reason == "collapsed" else ""
        if progress.step and reason != "interrupted":
            self.emit("summary", **summarise(self.run.path, progress.best_step).to_dict())
        state = "interrupted" if reason == "interrupted" else "complete"
        told = {"message": self.outcome.message} if self.outcome.message else {}
        self.run.set_status(state, progress.step, reason=reason, **told)
        self.emit("ended", step=progress.step, reason=reason, seconds=round(self.outcome.seconds, 3), **told)

    def _refuse_unscored(self) -> None:
        """A run that never saw a reward has failed: going on would teach nothing."""
        self.scored = self.scored or any(metrics.REWARD in line["values"] for line in read_metrics(self.run.path))
        step = self.progress.step
        if self.scored or not step:
            return
        last = list(read_rollouts(self.run.path / "rollouts" / f"train-{step - 1}.jsonl"))
        raise RewardError(
            f"No rollout got a reward in {step} steps, so nothing was learned. The most common reason: "
            f"{most_common_error([last])}. Put the reward or its judge right (benchmax validate helps), "
            "then start again."
        )

    def _failed(self, error: BaseException) -> None:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        message = f"no space left on {self.run.path}" if full else f"{type(error).__name__}: {error}"
        try:
            self.run.set_status("failed", self.progress.step, message=message)
            self.emit("failed", step=self.progress.step, message=message)
        except OSError:
            if not full:  # then the error that is raised says it all
                logger.error("could not record the failure: %s", message)

    def _reason_to_end(self) -> str | None:
        progress, config = self.progress, self.config
        if self.interrupts.stopped:
            return "interrupted"
        if config.eval.target is not None and progress.last is not None and progress.last >= config.eval.target:
            return "target"
        if config.eval.stop_solved and progress.all_solved:
            return "solved"
        if config.eval.patience is not None and progress.stale >= config.eval.patience:
            return "patience"
        if progress.step >= config.limits.steps:
            return "steps"
        if config.limits.seconds is not None and self._seconds() >= config.limits.seconds:
            return "time"
        return None

    # One step

    async def step(self) -> dict[str, float]:
        """Sample, compare, update, push; all of it recorded."""
        number = self.progress.step
        before, chance = self.stream.state(), random_states()
        try:
            began = time.monotonic()
            groups = await self.gatherer.groups(number)
            sampled = time.monotonic()
            shown = await self.gatherer.guidance(groups)
            learn = partial(self.learner.learn, step=number, shown=shown)
            update = await self.interrupts.in_thread(learn, groups, self.interrupts.giving_up)
            await self.push()
        except BaseException:
            self.stream.restore(before)
            set_random(chance)
            raise
        ended = time.monotonic()
        used = sum(any(rollout.discarded is None for rollout in group) for group in groups)
        values: dict[str, float] = rollout_metrics(groups) | update | {
            "groups": float(len(groups)),
            metrics.GROUPS_USED: float(used),
            metrics.GROUPS_GUIDED: float(len(shown)),
            metrics.GROUPS_SKIPPED: float(len(groups) - used),
            metrics.SAMPLE_SECONDS: sampled - began,
            metrics.UPDATE_SECONDS: ended - sampled,
            metrics.TOKENS_PER_SECOND: sum(response_tokens(r) for group in groups for r in group) / (ended - began),
        }  # fmt: skip
        self._record("train", number, values, groups)
        if number == self._first:
            self._check_weights(groups)
        self.progress.step += 1
        self.run.set_status("running", self.progress.step)
        self._watch(number, values, groups)
        return values

    def _check_weights(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """Tell of weights whose component no reward has: most likely it is spelled otherwise."""
        there = {name for group in groups for rollout in group for name in rollout.rewards}
        missing = sorted(set(self.config.rollouts.weights) - there)
        if missing and there:
            self.emit(
                "note",
                message=f"rollouts.weights names {', '.join(missing)}, which no reward of the first step has; "
                f"there are: {', '.join(sorted(there))}.",
            )

    async def push(self) -> None:
        """Let the sampler have the weights of now."""
        policy = self.learner.policy

        def push() -> None:
            patiently(lambda: self.sampler.push(policy.sampler_weights()), policy.device)

        await self.interrupts.in_thread(push)

    # Evaluation

    async def evaluate(self) -> dict[str, float]:
        """Play the held-out rows and remember the best."""
        progress = self.progress
        values, groups = await self.play_held_out("eval")
        self._record("eval", progress.step, values, groups)
        reward = self.counted(values)
        alerts = self.watchdogs.look_at_held_out(max(0, progress.step - 1), progress.best, reward, groups)
        self._alarm(alerts)
        progress.saw(reward, self.watchdogs.highest)
        return values

    async def play_held_out(self, split: str) -> tuple[dict[str, float], list[list[Rollout]]]:
        """What the held-out rows earn with the sampler's weights; nothing is remembered of it."""
        config = self.config.eval
        draw = Draw(split, self.progress.step, config.samples, config.temperature)
        began = time.monotonic()
        groups = await self.sampler.sample(self.held_out, draw, self.saw_group)
        return rollout_metrics(groups) | {metrics.SAMPLE_SECONDS: time.monotonic() - began}, groups

    def counted(self, values: dict[str, float]) -> float | None:
        """The mean reward of an evaluation, if enough of it was scored to count."""
        enough = values.get("unscored", 1.0) <= 1 - self.config.algorithm.min_scored
        return values.get(metrics.REWARD) if enough else None

    def _due(self, every: int) -> bool:
        step = self.progress.step
        return (
            bool(self.held_out) and self.progress.evaluated != step and (step == 0 or bool(every and step % every == 0))
        )

    # Records

    def _record(self, split: str, step: int, values: dict[str, float], groups: Sequence[Sequence[Rollout]]) -> None:
        rollouts = (rollout for group in groups for rollout in group)
        self.run.write_rollouts(split, step, rollouts, tokens=self.config.output.save_tokens)
        line = self.run.log_metrics(step, split, values)
        self.on_event("metrics", line)

    def _prepare_watch(self) -> None:
        self.watchdogs.vocabulary = self.learner.policy.vocabulary
        lr = self.learner.optimizer.lr
        if lr > HIGH_LR:
            self.emit("note", message=f"optim.lr {lr:g} is very high: above {HIGH_LR:g} a model is soon destroyed.")

    def _watch(self, step: int, values: dict[str, float], groups: Sequence[Sequence[Rollout]]) -> None:
        self.scored = self.scored or metrics.REWARD in values
        finite = {name: value for name, value in values.items() if value == value and abs(value) != float("inf")}
        self._alarm(self.watchdogs.look(step, finite, groups))
        self.mender.count(values.get(metrics.SKIPPED_UPDATES, 0.0))

    def _alarm(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self.emit("alert", **alert.to_dict())
        self.mender.look_at(alerts)

    def emit(self, kind: str, **data: Any) -> None:
        """Record an event of the run, and pass it on."""
        self.on_event(kind, self.run.log_event(kind, **data))

    def tell(self, kind: str, **data: Any) -> None:
        """Pass on what is no event of the run; from any thread."""
        assert self._running_on is not None
        self._running_on.call_soon_threadsafe(self._told, kind, data)

    def _told(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "sft":
            self.run.log_metrics(data["step"], "sft", {"loss": data["loss"]})
        self.on_event(kind, data)

    def saw_group(self, group: list[Rollout]) -> None:
        self.on_event("group", {"split": group[0].split, "rollouts": group})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                self.run.set_status("running", self.progress.step)
            except OSError as error:
                logger.warning("no heartbeat: %s", error)

    def _seconds(self) -> float:
        return self.progress.seconds + time.monotonic() - self._began
