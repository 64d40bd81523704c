"""The training loop.

    evaluate ─▶ { pick prompts ─▶ sample groups ─▶ replace those without signal ─▶ update ─▶ push weights } × steps
        ▲                                                                                         │
        └────────────────────── every `eval.every` steps, and after the last ◀────────────────────┘

What happened is in the run directory before the next step begins. A step is all or nothing: one that is interrupted
leaves the weights as they were, and a resumed run repeats it with the same draws. What happens before the first step is
in `warm_start`; what happens when a run goes wrong, in `watch`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmax import metrics
from benchmax.envs.types import Example
from benchmax.errors import RewardError
from benchmax.memory import disk_is_full
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import read_rollouts
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
from benchmax.trainer.display.summary import summarise
from benchmax.trainer.ending import reason_to_end
from benchmax.trainer.interrupts import Interrupts
from benchmax.trainer.learning.gpu import retry_without_memory
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.progress import STUCK_EVALUATIONS, Outcome, Progress
from benchmax.trainer.rundir import RunDir, read_metrics
from benchmax.trainer.sampling.collector import collect, demonstrations
from benchmax.trainer.sampling.prompt_selection import PromptStream
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.sampling.sampler import Sampler
from benchmax.trainer.sampling.step_metrics import response_tokens, rollout_metrics
from benchmax.trainer.warm_start import supervised_refresh
from benchmax.trainer.warm_start.solutions import Solver
from benchmax.trainer.watch.history import most_common_error
from benchmax.trainer.watch.monitor import Alert, Monitor
from benchmax.trainer.watch.recovery import CollapseRecovery
from benchmax.trainer.watch.reward_alarms import HIGH_LR

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
UNSCORED_STEPS = 5
"""Steps without a single reward, from the first on, after which a run fails; a resumed one may try as many again."""
PLATEAU_LR_FACTOR = 0.5
MIN_LR_SHARE = 0.1
"""The smallest share of the configured learning rate."""
WarmUp = Callable[[], Coroutine[Any, Any, None]]
"""What a new run does before its first step."""


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
        solver: Solver | None = None,
        grace: float | None = None,
        primary: metrics.Primary = None,
    ) -> None:
        self.run, self.config, self.learner, self.sampler = run, run.config, learner, sampler
        self.held_out = list(held_out)[: self.config.eval.rows]
        self.on_event, self.solver = on_event, solver
        self.primary = primary
        """The reward component that says whether a task is solved; the total when none is named."""
        self.interrupts = Interrupts(lambda seconds: self.on_event("stopping", {"seconds": seconds}), grace)
        self.stream = PromptStream(train, self.config.seed, self.config.data.curriculum)
        self.monitor = Monitor(self.config.watch)
        self.recovery = CollapseRecovery(self)
        self.progress = Progress()
        self.chosen: list[dict[str, Any]] = []
        """Settings the user left out, with the reason for each value."""
        self.first_groups: list[list[Rollout]] = []
        """What was sampled for the first step before it began."""
        self.scored = False
        """Whether any rollout of the run got a reward."""
        self._saved: tuple[int, int] | None = None
        """Step and last evaluation in the newest checkpoint."""
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._first = 0
        """Steps done when this process began."""
        self._began = time.monotonic()

    def interrupt(self) -> None:
        """Finish the step under way if that is quick, save, and end."""
        self.interrupts.stop()

    def record_kill(self) -> None:
        """Leave the run directory in order before the process is killed."""
        self.run.sweep()
        with suppress(OSError):
            self.run.set_status("interrupted", self.progress.step, reason="stopped at once")

    # Saving and going back

    def restore(self, checkpoint: Checkpoint) -> int:
        """Go on from a checkpoint; moves later records aside and returns their number."""
        state = checkpoint.restore(self.learner.policy, self.learner.optimizer)
        self.progress = Progress.from_dict(state["progress"])
        self.stream.restore(state["stream"])
        self.monitor.restore(state["watchdogs"])
        self.sampler.restore(state.get("sampler", {}))  # runs of earlier versions have none, nor a learner's
        self.learner.restore(state.get("learner", {}))
        self._saved = (self.progress.step, self.progress.evaluated)
        # In this order a kill between any two is repaired by the next resume.
        self.run.set_status("running", checkpoint.step)
        go_back(checkpoint.path.parent, checkpoint.step, self.progress.best_step)
        self._mark_best()
        return self.run.rewind(checkpoint.step, evaluated=self.progress.evaluated == checkpoint.step)

    def save(self, *, again: bool = False) -> None:
        """Write the checkpoint of the current step unless it exists; with `again`, in any case."""
        progress, folder = self.progress, self.run.path / "checkpoints"
        if self._saved == (progress.step, progress.evaluated) and not again:
            return
        progress.seconds, self._began = self._seconds(), time.monotonic()
        state = {
            "progress": asdict(progress),
            "stream": self.stream.state(),
            "watchdogs": self.monitor.state(),
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
        """Called once the checkpoint of this step exists. One that is not kept is not marked either."""
        if self.config.checkpoint.keep_best and self.progress.at_best:
            mark_best(self.run.path / "checkpoints", self.progress.step)

    # Running

    async def train(self, warm_up: WarmUp | None = None) -> Outcome:
        """Train until the first reason to end."""
        self._began, self._first = time.monotonic(), self.progress.step
        self._event_loop = asyncio.get_running_loop()
        heartbeat = asyncio.create_task(self._beat())
        self.run.set_status("running", self.progress.step)
        self.emit("started", step=self.progress.step)
        self.monitor.history.vocabulary = self.learner.policy.vocabulary
        if (lr := self.learner.optimizer.lr) > HIGH_LR:
            self.emit("note", message=f"optim.lr {lr:g} is very high: above {HIGH_LR:g} a model is soon destroyed.")
        if warm_up is not None and self.chosen:
            self.emit("chosen", settings=list(self.chosen))
        unless_stopped = self.interrupts.unless_stopped
        try:
            await unless_stopped(self.push())
            begun = warm_up is None or await unless_stopped(self._warm_up(warm_up))
            return await self._finish(await self._loop(), save=begun)
        except BaseException as error:
            self._record_failure(error)
            raise
        finally:
            heartbeat.cancel()
            self.interrupts.close()

    async def _warm_up(self, warm_up: WarmUp) -> None:
        """All or nothing: a run that is stopped in it begins again."""
        await warm_up()
        self.save()

    async def _loop(self) -> str:
        """Steps and evaluations until there is a reason to end, which is returned."""
        unless_stopped = self.interrupts.unless_stopped
        while True:
            step = self.progress.step
            if self._evaluation_due() and not self.interrupts.stopped:
                await unless_stopped(self.evaluate())
            new_best = self.config.checkpoint.keep_best and step > 0 and self.progress.at_best
            if (step % self.config.checkpoint.every == 0 or new_best) and not self.interrupts.stopped:
                self.save()
            if not self.scored and step - self._first >= UNSCORED_STEPS:
                self._refuse_unscored()
            if self.interrupts.stopped:
                return "interrupted"
            if reason := reason_to_end(self.progress, self.config, self.seconds_left):
                return reason
            if self.recovery.is_due:
                if not await unless_stopped(self.recovery.recover()):
                    return "interrupted"
                if self.recovery.diagnosis:
                    return "collapsed"
                continue
            if self.progress.is_stuck and not await unless_stopped(self._leave_plateau()):
                return "interrupted"
            if not await unless_stopped(self.step()):
                return "interrupted"

    async def _leave_plateau(self) -> None:
        """Show solutions and make steps smaller when evaluations get no better. It counts only once it is done, so a
        run that was interrupted in it repeats it."""
        if supervised_refresh.is_due(self):
            await supervised_refresh.teach(self)
            self.progress.lessons += 1
        self._decay_learning_rate()
        self.progress.idle = 0

    def _decay_learning_rate(self) -> None:
        """Lower the learning rate, unless it is low already: with few samples a step, the policy oscillates around what
        it could be, and settles when steps get smaller."""
        optimizer = self.learner.optimizer
        if not self.config.optim.cooling or optimizer.ceiling <= MIN_LR_SHARE:
            return
        optimizer.lower_ceiling(PLATEAU_LR_FACTOR, MIN_LR_SHARE)
        lr = optimizer.lr * optimizer.ceiling
        better = f"{STUCK_EVALUATIONS} evaluations in a row got no better"
        message = f"{better}: the learning rate is {lr:.1e} at most from here on."
        self.emit("cooled", step=self.progress.step, lr=lr, message=message)

    async def _finish(self, reason: str, save: bool) -> Outcome:
        progress = self.progress
        if reason not in ("interrupted", "collapsed") and self.held_out and progress.evaluated != progress.step:
            reason = reason if await self.interrupts.unless_stopped(self.evaluate()) else "interrupted"
        if save:
            self.save()
        if reason != "interrupted":
            self._refuse_unscored()
        lines = read_metrics(self.run.path)
        evals = [line["values"] for line in lines if line["split"] == "eval"] or [{}]
        learned = (metrics.GROUPS_USED, metrics.GROUPS_GUIDED)
        outcome = Outcome(
            self.run.path, reason, progress.step, evals[0], evals[-1], self._seconds(),
            learned=any(line["values"].get(name) for line in lines for name in learned),
            best=progress.best, best_step=progress.best_step,
            message=self.recovery.diagnosis if reason == "collapsed" else "",
        )  # fmt: skip
        if progress.step and reason != "interrupted":
            self.emit("summary", **asdict(summarise(self.run.path, progress.best_step)))
        state = "interrupted" if reason == "interrupted" else "complete"
        message = {"message": outcome.message} if outcome.message else {}
        self.run.set_status(state, progress.step, reason=reason, **message)
        self.emit("ended", step=progress.step, reason=reason, seconds=round(outcome.seconds, 3), **message)
        return outcome

    def _refuse_unscored(self) -> None:
        """Raise RewardError for a run that never saw a reward: going on would teach nothing."""
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

    def _record_failure(self, error: BaseException) -> None:
        full = disk_is_full(error)
        message = f"no space left on {self.run.path}" if full else f"{type(error).__name__}: {error}"
        try:
            self.run.set_status("failed", self.progress.step, message=message)
            self.emit("failed", step=self.progress.step, message=message)
        except OSError:
            if not full:  # the error that is raised says that already
                logger.error("could not record the failure: %s", message)

    # One step

    async def step(self) -> dict[str, float]:
        """Sample, compare, update and push the weights; all of it recorded."""
        number = self.progress.step
        stream, generators = self.stream.state(), random_states()
        try:
            began = time.monotonic()
            groups = await collect(self, number)
            sampled = time.monotonic()
            shown = await demonstrations(self, groups)
            learn = partial(self.learner.learn, step=number, shown=shown)
            update = await self.interrupts.in_thread(learn, groups, self.interrupts.giving_up)
            await self.push()
        except BaseException:
            self.stream.restore(stream)
            set_random(generators)
            raise
        ended = time.monotonic()
        used = sum(any(rollout.discarded is None for rollout in group) for group in groups)
        values: dict[str, float] = rollout_metrics(groups, self.primary) | update | {
            metrics.GROUPS: float(len(groups)),
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
        self.scored = self.scored or metrics.REWARD in values
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._report(self.monitor.check_step(number, finite, groups))
        self.recovery.observe_skipped(values.get(metrics.SKIPPED_UPDATES, 0.0))
        return values

    def _check_weights(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """Note weights of components that no reward has: most likely they are misspelled."""
        there = {name for group in groups for rollout in group for name in rollout.rewards}
        missing = ", ".join(sorted(set(self.config.rollouts.weights) - there))
        if missing and there:
            known = ", ".join(sorted(there))
            message = f"rollouts.weights names {missing}, which no reward of the first step has; there are: {known}."
            self.emit("note", message=message)

    async def push(self) -> None:
        """Give the sampler the current weights."""
        policy = self.learner.policy
        await self.interrupts.in_thread(
            retry_without_memory, lambda: self.sampler.push(policy.sampler_weights()), policy.device
        )

    # Evaluation

    async def evaluate(self) -> dict[str, float]:
        """Play the held-out rows and remember the best result."""
        progress = self.progress
        values, groups = await self.play_held_out("eval")
        self._record("eval", progress.step, values, groups)
        reward = self.counted(values)
        self._report(self.monitor.check_evaluation(max(0, progress.step - 1), progress.best, reward, groups))
        progress.observe_evaluation(reward, self.monitor.history.highest)
        return values

    async def play_held_out(self, split: str) -> tuple[dict[str, float], list[list[Rollout]]]:
        """What the held-out rows earn with the sampler's weights; nothing is remembered of it."""
        config = self.config.eval
        draw = Draw(split, self.progress.step, config.samples, config.temperature)
        began = time.monotonic()
        groups = await self.sampler.sample(self.held_out, draw, self.on_group)
        seconds = {metrics.SAMPLE_SECONDS: time.monotonic() - began}
        return rollout_metrics(groups, self.primary) | seconds, groups

    def counted(self, values: dict[str, float]) -> float | None:
        """The mean reward of an evaluation; None when too little of it was scored to count."""
        enough = values.get(metrics.UNSCORED, 1.0) <= 1 - self.config.algorithm.min_scored
        return values.get(metrics.REWARD) if enough else None

    def _evaluation_due(self) -> bool:
        step, every = self.progress.step, self.config.eval.every
        new = bool(self.held_out) and self.progress.evaluated != step
        return new and (step == 0 or bool(every and step % every == 0))

    # Records

    def _record(self, split: str, step: int, values: dict[str, float], groups: Sequence[Sequence[Rollout]]) -> None:
        rollouts = (rollout for group in groups for rollout in group)
        self.run.write_rollouts(split, step, rollouts, tokens=self.config.output.save_tokens)
        self.on_event("metrics", self.run.log_metrics(step, split, values))

    def _report(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self.emit("alert", **alert.to_dict())
        self.recovery.observe_alerts(alerts)

    def emit(self, kind: str, **data: Any) -> None:
        """Record an event of the run and pass it on."""
        self.on_event(kind, self.run.log_event(kind, **data))

    def notify(self, kind: str, **data: Any) -> None:
        """Pass on progress that is no event of the run; from any thread."""
        assert self._event_loop is not None
        self._event_loop.call_soon_threadsafe(self._notify, kind, data)

    def _notify(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "sft":
            self.run.log_metrics(data["step"], "sft", {metrics.LOSS: data["loss"]})
        self.on_event(kind, data)

    def on_group(self, group: list[Rollout]) -> None:
        self.on_event("group", {"split": group[0].split, "rollouts": group})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                self.run.set_status("running", self.progress.step)
            except OSError as error:
                logger.warning("no heartbeat: %s", error)

    @property
    def seconds_left(self) -> float:
        """Until `limits.seconds` ends the run."""
        limit = self.config.limits.seconds
        return math.inf if limit is None else limit - self._seconds()

    def _seconds(self) -> float:
        return self.progress.seconds + time.monotonic() - self._began
