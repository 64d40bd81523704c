"""The rollouts of one step: prompts drawn and sampled, silent groups replaced, demonstrations put beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from benchmax import retries
from benchmax.errors import RewardError
from benchmax.rollouts.record import Rollout
from benchmax.trainer.learning.advantage import NO_SIGNAL, AdvantageRule, CutOff, assign_advantages
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.metrics import SOLVED
from benchmax.trainer.sampler import Draw
from benchmax.trainer.watch.alarms import most_common_error

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

OUTAGE_TRIES = 30
"""Times a step is scored again when rewards that were there fail altogether: a judge may be down for a while."""
OUTAGE_SECONDS = 1.0, 10.0
"""The first pause between two such tries, which doubles, and the longest."""


class Gatherer:
    """Gathers what one run learns from."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    async def groups(self, number: int) -> list[list[Rollout]]:
        """The step's groups. Where rewards that were there fail altogether, the step is tried again after a while."""
        before = self._trainer.stream.state()
        for tries in count(1):
            groups = await self._sample(number)
            if not self._trainer.scored or any(rollout.reward is not None for group in groups for rollout in group):
                return groups
            self._outage(number, tries, groups)
            self._trainer.stream.restore(before)
            first, longest = OUTAGE_SECONDS
            await asyncio.sleep(retries.pause(tries, first, longest))
        raise AssertionError("an outage ends, or the run does")

    def _outage(self, step: int, tries: int, groups: Sequence[Sequence[Rollout]]) -> None:
        reason = most_common_error(groups)
        if tries >= OUTAGE_TRIES:
            raise RewardError(
                f"Rewards have failed since step {step + 1}: {tries} tries of it got none. The most common reason: "
                f"{reason}. Put the reward or its judge right, then resume the run."
            )
        self._trainer.emit(
            "outage", step=step, tries=tries,
            message=f"No rollout of step {step + 1} got a reward ({reason}): it is tried again, {tries} of "
            f"{OUTAGE_TRIES} times so far.",
        )  # fmt: skip

    async def _sample(self, number: int) -> list[list[Rollout]]:
        """The step's groups, with fresh prompts drawn for those without signal as far as the bound allows."""
        rollouts, rule = self._trainer.config.rollouts, self._rule()
        draw = Draw("train", number, rollouts.group_size, self._trainer.learner.policy.temperature)
        groups: list[list[Rollout]] = []
        wanted, extra = rollouts.prompts_per_step, self._trainer.config.extra_groups
        seen: set[str] = set()
        first, self._trainer.first_groups = self._trainer.first_groups, []
        while wanted and (examples := self._trainer.stream.take(wanted, without=seen)):
            seen |= {example["id"] for example in examples}
            fresh, first = first or await self._trainer.sampler.sample(examples, draw, self._trainer.saw_group), []
            silent = sum(not assign_advantages(group, rule) for group in fresh)
            groups += fresh
            wanted = min(silent, extra)
            extra -= wanted
        for group in groups:
            self._observe(group)
        return groups

    def _rule(self) -> AdvantageRule:
        algorithm, low = self._trainer.config.algorithm, self._trainer.watchdogs.lowest
        cut = CutOff(algorithm.cut_off, algorithm.cut_off_penalty, self._trainer.config.rollouts.max_new_tokens, low)
        return AdvantageRule(algorithm.advantage, algorithm.leave_one_out, algorithm.min_scored, cut)

    async def guidance(self, groups: Sequence[Sequence[Rollout]]) -> list[TokenSequence]:
        """Demonstrations for groups without signal whose samples earn less: those are learned from in their place."""
        if self._trainer.guide is None or self._trainer.config.algorithm.guidance == "off":
            return []
        shown: list[TokenSequence] = []
        rows = {row["id"]: row for row in self._trainer.stream.examples}
        for index, group in enumerate(groups):
            silent = [rollout.reward for rollout in group if rollout.discarded == NO_SIGNAL]
            paid = [reward for reward in silent if reward is not None]
            if len(paid) < max(2, self._trainer.config.algorithm.min_scored * len(group)):
                continue
            lesson = await self._trainer.guide.lesson(rows[group[0].example_id])
            if lesson is not None and lesson.reward > max(paid) + self._trainer.guide.margin(lesson.reward):
                shown.append(replace(lesson.sequence, group=index, shown=True))
        return shown

    def _observe(self, group: Sequence[Rollout]) -> None:
        """Remember how often the model solves this row, for the curriculum."""
        rewards = [rollout.reward for rollout in group if rollout.reward is not None]
        enough = SOLVED if self._trainer.progress.gold is None else self._trainer.progress.gold - 1e-6
        if rewards:
            rate = sum(reward >= enough for reward in rewards) / len(rewards)
            self._trainer.stream.observe(group[0].example_id, rate)
