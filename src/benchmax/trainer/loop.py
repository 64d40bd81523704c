"""The training loop.

    evaluate ─▶ { pick prompts ─▶ sample groups ─▶ replace those without signal ─▶ update ─▶ push weights } × steps
        ▲                                                                                         │
        └────────────────────── every `eval.every` steps, and after the last ◀────────────────────┘

What happened is in the run directory before the next step begins. A step is all or nothing: one that is cut off leaves
the weights as they were, and a resumed run does it again with the same draws.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmax.envs.types import Example
from benchmax.errors import DatasetError, RewardError
from benchmax.rollouts.log import read_rollouts
from benchmax.rollouts.record import Rollout
from benchmax.trainer.advantage import AdvantageRule, assign_advantages
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
from benchmax.trainer.learner import Aborted, Learner
from benchmax.trainer.metrics import SOLVED, response_tokens, rollout_metrics
from benchmax.trainer.prompts import PromptStream
from benchmax.trainer.rundir import RunDir, read_metrics
from benchmax.trainer.sampler import Draw, Sampler
from benchmax.trainer.watchdogs import HIGH_LR, Alert, Watchdogs, most_common_error

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""How long a step in flight may go on after the first Ctrl-C."""
UNSCORED_STEPS = 5
"""Steps without a single reward, from the first on, after which a run is given up; one that is resumed may try as
many again."""

OnEvent = Callable[[str, dict[str, Any]], None]
"""Told of everything that happens: a kind and its data. For live views."""
Begin = Callable[[Callable[[], bool]], object]
"""Done before the first step of a new run, in the update's thread; told whom to ask whether to give up."""


@dataclass(slots=True)
class Progress:
    """What the loop has to remember besides weights."""

    step: int = 0
    """Steps done."""
    evaluated: int = -1
    """Steps done at the last evaluation."""
    last: float | None = None
    """Mean held-out reward of the last evaluation."""
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    """Evaluations since the best."""
    seconds: float = 0.0
    """Training time of earlier processes."""


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    path: Path
    reason: str
    """`steps`, `target`, `patience`, `time` or `interrupted`."""
    step: int
    first_eval: dict[str, float] = field(default_factory=dict)
    last_eval: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    learned: bool = True
    """Whether any group of any step had signal."""


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
    ) -> None:
        if not train:
            raise DatasetError("There are no training rows. Give data.train a file with at least one usable row.")
        self.run = run
        self.config: TrainConfig = run.config
        self.learner = learner
        self.sampler = sampler
        self.held_out = list(held_out)[: self.config.eval.rows]
        self.on_event = on_event
        self.stream = PromptStream(train, self.config.seed, self.config.data.curriculum)
        self.watchdogs = Watchdogs(self.config.watch)
        self.progress = Progress()
        self.outcome = Outcome(run.path, "steps", 0)
        self._saved: tuple[int, int] | None = None
        """Step and last evaluation in the newest checkpoint."""
        self._scored = False
        self._first = 0
        """Steps done when this process began."""
        self._stop = False
        self._give_up = False
        self._began = time.monotonic()
        # One thread of its own: the event loop stays free while the update computes.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="benchmax-update")

    # Stopping

    def interrupt(self) -> None:
        """Finish the step in flight if that is quick, save, and end."""
        self._stop = True

    # Resuming

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; later records are moved aside."""
        state = checkpoint.restore(self.learner.policy, self.learner.optimizer)
        self.progress = Progress(**state["progress"])
        self.stream.restore(state["stream"])
        self.watchdogs.restore(state["watchdogs"])
        self.sampler.restore(state.get("sampler", {}))  # runs of before have none, nor a learner's
        self.learner.restore(state.get("learner", {}))
        self._saved = (self.progress.step, self.progress.evaluated)
        # In this order a kill between any two is made good by the next resume.
        self.run.set_status("running", checkpoint.step)
        go_back(checkpoint.path.parent, checkpoint.step, self.progress.best_step)
        self._mark_best()
        moved = self.run.rewind(checkpoint.step, evaluated=self.progress.evaluated == checkpoint.step)
        self._emit("resumed", step=checkpoint.step, lines_moved_aside=moved)

    def save(self) -> None:
        """Write the checkpoint of the current step, unless it is there."""
        progress, folder = self.progress, self.run.path / "checkpoints"
        if self._saved == (progress.step, progress.evaluated):
            return
        progress.seconds, self._began = self._seconds(), time.monotonic()
        state = {
            "progress": {name: getattr(progress, name) for name in Progress.__slots__},
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
        self._emit("checkpoint", step=progress.step, path=str(saved.path.relative_to(self.run.path)))

    def _mark_best(self) -> None:
        """Called once the checkpoint of this step is there. One that is not kept is not named either."""
        if self.config.checkpoint.keep_best and self._at_best():
            mark_best(self.run.path / "checkpoints", self.progress.step)

    def _at_best(self) -> bool:
        progress = self.progress
        return progress.best is not None and progress.evaluated == progress.step == progress.best_step

    # Running

    async def train(self, begin: Begin | None = None) -> Outcome:
        """Train to the end, whichever comes first."""
        self._began, self._first = time.monotonic(), self.progress.step
        heartbeat = asyncio.create_task(self._beat())
        self.run.set_status("running", self.progress.step)
        self._emit("started", step=self.progress.step)
        self._prepare_watch()
        try:
            begun = begin is None or await self._unless_stopped(self._begin(begin))
            await self._unless_stopped(self._push())
            reason = await self._loop()
            await self._finish(reason, keep=begun)
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            heartbeat.cancel()
            self._thread.shutdown(wait=True, cancel_futures=True)
        return self.outcome

    async def _begin(self, begin: Begin) -> None:
        """Whole or not at all: a run that is stopped in it begins again."""
        await self._in_thread(begin, lambda: self._give_up)
        self._began = time.monotonic()
        self.save()

    async def _loop(self) -> str:
        while True:
            step = self.progress.step
            if self._due(self.config.eval.every) and not self._stop:
                await self._unless_stopped(self.evaluate())
            new_best = self.config.checkpoint.keep_best and step > 0 and self._at_best()
            if (step % self.config.checkpoint.every == 0 or new_best) and not self._stop:
                self.save()
            if not self._scored and step - self._first >= UNSCORED_STEPS:
                self._refuse_unscored()
            reason = self._reason_to_end()
            if reason:
                return reason
            if not await self._unless_stopped(self.step()):
                return "interrupted"

    async def _finish(self, reason: str, keep: bool) -> None:
        if reason != "interrupted" and self.held_out and self.progress.evaluated != self.progress.step:
            reason = reason if await self._unless_stopped(self.evaluate()) else "interrupted"
        if keep:
            self.save()
        if reason != "interrupted":
            self._refuse_unscored()
        lines = read_metrics(self.run.path)
        evals = [line["values"] for line in lines if line["split"] == "eval"] or [{}]
        self.outcome = Outcome(self.run.path, reason, self.progress.step, evals[0], evals[-1], self._seconds())
        self.outcome.learned = any(line["values"].get("groups/used") for line in lines)
        state = "interrupted" if reason == "interrupted" else "complete"
        self.run.set_status(state, self.progress.step, reason=reason)
        self._emit("ended", step=self.progress.step, reason=reason, seconds=round(self.outcome.seconds, 3))

    def _refuse_unscored(self) -> None:
        """A run that never saw a reward has failed: going on would teach nothing."""
        self._scored = self._scored or any("reward/mean" in line["values"] for line in read_metrics(self.run.path))
        step = self.progress.step
        if self._scored or not step:
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
            self._emit("failed", step=self.progress.step, message=message)
        except OSError:
            if not full:  # then the error that is raised says it all
                logger.error("could not record the failure: %s", message)

    def _reason_to_end(self) -> str | None:
        progress, config = self.progress, self.config
        if self._stop:
            return "interrupted"
        if config.eval.target is not None and progress.last is not None and progress.last >= config.eval.target:
            return "target"
        if config.eval.patience is not None and progress.stale >= config.eval.patience:
            return "patience"
        if progress.step >= config.limits.steps:
            return "steps"
        if config.limits.seconds is not None and self._seconds() >= config.limits.seconds:
            return "time"
        return None

    async def _unless_stopped(self, work: Any) -> bool:
        """Do the work; after an interrupt it has a grace period, then it is given up. True when it was done."""
        task = asyncio.ensure_future(work)
        try:
            await self._done_or_given_up(task)
        except BaseException:  # we are cancelled ourselves: nothing goes on behind our back
            self._give_up = True
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled() or isinstance(task.exception(), Aborted):
            return False
        task.result()
        return True

    async def _done_or_given_up(self, task: asyncio.Future[Any]) -> None:
        while not task.done():
            await asyncio.wait([task], timeout=0.2)
            if self._stop:
                self.on_event("stopping", {"seconds": GRACE_SECONDS})
                await asyncio.wait([task], timeout=GRACE_SECONDS)
                self._give_up = True
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])

    # One step

    async def step(self) -> dict[str, float]:
        """Sample, compare, update, push; all of it recorded."""
        number = self.progress.step
        before, chance = self.stream.state(), random_states()
        try:
            began = time.monotonic()
            groups = await self._sample(number)
            sampled = time.monotonic()
            learn = partial(self.learner.learn, step=number)
            update = await self._in_thread(learn, groups, lambda: self._give_up)
            await self._push()
        except BaseException:
            self.stream.restore(before)
            set_random(chance)
            raise
        ended = time.monotonic()
        used = sum(any(rollout.discarded is None for rollout in group) for group in groups)
        values: dict[str, float] = rollout_metrics(groups) | update | {
            "groups": float(len(groups)),
            "groups/used": float(used),
            "skipped_groups": float(len(groups) - used),
            "seconds/sample": sampled - began,
            "seconds/update": ended - sampled,
            "tokens_per_second": sum(response_tokens(r) for group in groups for r in group) / (ended - began),
        }  # fmt: skip
        self._record("train", number, values, groups)
        if number == self._first:
            self._check_weights(groups)
        self.progress.step += 1
        self.run.set_status("running", self.progress.step)
        self._watch(number, values, groups)
        return values

    async def _sample(self, number: int) -> list[list[Rollout]]:
        """The step's groups, with fresh prompts drawn for those without signal as far as the bound allows."""
        rollouts, algorithm = self.config.rollouts, self.config.algorithm
        rule = AdvantageRule(algorithm.advantage, algorithm.leave_one_out, algorithm.min_scored)
        draw = Draw("train", number, rollouts.group_size, rollouts.temperature)
        groups: list[list[Rollout]] = []
        wanted, extra = rollouts.prompts_per_step, self.config.extra_groups
        seen: set[str] = set()
        while wanted and (examples := self.stream.take(wanted, without=seen)):
            seen |= {example["id"] for example in examples}
            fresh = await self.sampler.sample(examples, draw, self._saw_group)
            silent = sum(not assign_advantages(group, rule) for group in fresh)
            groups += fresh
            wanted = min(silent, extra)
            extra -= wanted
        for group in groups:
            self._observe(group)
        return groups

    def _check_weights(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """Tell of weights whose component no reward has: most likely it is spelled otherwise."""
        there = {name for group in groups for rollout in group for name in rollout.rewards}
        missing = sorted(set(self.config.rollouts.weights) - there)
        if missing and there:
            self._emit(
                "note",
                message=f"rollouts.weights names {', '.join(missing)}, which no reward of the first step has; "
                f"there are: {', '.join(sorted(there))}.",
            )

    def _observe(self, group: Sequence[Rollout]) -> None:
        rewards = [rollout.reward for rollout in group if rollout.reward is not None]
        if rewards:
            self.stream.observe(group[0].example_id, sum(reward >= SOLVED for reward in rewards) / len(rewards))

    async def _push(self) -> None:
        await self._in_thread(lambda: self.sampler.push(self.learner.policy.sampler_weights()))

    # Evaluation

    async def evaluate(self) -> dict[str, float]:
        """Play the held-out rows and remember the best."""
        config, progress = self.config.eval, self.progress
        draw = Draw("eval", progress.step, config.samples, config.temperature)
        began = time.monotonic()
        groups = await self.sampler.sample(self.held_out, draw, self._saw_group)
        values = rollout_metrics(groups) | {"seconds/sample": time.monotonic() - began}
        self._record("eval", progress.step, values, groups)
        progress.evaluated = progress.step
        enough = values.get("unscored", 1.0) <= 1 - self.config.algorithm.min_scored
        progress.last = reward = values.get("reward/mean") if enough else None
        self._alarm(self.watchdogs.look_at_held_out(max(0, progress.step - 1), progress.best, reward, groups))
        if reward is not None:
            better = progress.best is None or reward > progress.best
            progress.stale = 0 if better else progress.stale + 1
            if better or reward == progress.best:  # of equals the latest, which trained longest
                progress.best, progress.best_step = reward, progress.step
        return values

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
            self._emit("note", message=f"optim.lr {lr:g} is very high: above {HIGH_LR:g} a model is soon destroyed.")

    def _watch(self, step: int, values: dict[str, float], groups: Sequence[Sequence[Rollout]]) -> None:
        self._scored = self._scored or "reward/mean" in values
        finite = {name: value for name, value in values.items() if value == value and abs(value) != float("inf")}
        self._alarm(self.watchdogs.look(step, finite, groups))

    def _alarm(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self._emit("alert", **alert.to_dict())

    def _emit(self, kind: str, **data: Any) -> None:
        self.on_event(kind, self.run.log_event(kind, **data))

    def _saw_group(self, group: list[Rollout]) -> None:
        self.on_event("group", {"split": group[0].split, "rollouts": group})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                self.run.set_status("running", self.progress.step)
            except OSError as error:
                logger.warning("no heartbeat: %s", error)

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run in the update thread. It cannot be stopped half-way: when cancelled, work that got done counts.

        The cancellation goes no further; `_unless_stopped`, around all that calls this, passes it on.
        """
        future = asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            return future.result()

    def _seconds(self) -> float:
        return self.progress.seconds + time.monotonic() - self._began
