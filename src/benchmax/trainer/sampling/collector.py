"""The rollouts of one step: prompts are drawn and sampled, groups without signal replaced, demonstrations added."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from benchmax import metrics, retries
from benchmax.errors import RewardError
from benchmax.rollouts.record import Rollout
from benchmax.trainer.learning.advantage import NO_SIGNAL, AdvantageRule, CutOff, assign_advantages
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.sampling.rollout_settings import Draw
from benchmax.trainer.watch.history import most_common_error

if TYPE_CHECKING:
    from benchmax.trainer.loop import Trainer

OUTAGE_TRIES = 30
"""Times a step is sampled again when rewards that used to work fail altogether: a judge may be down for a while."""
OUTAGE_SECONDS = 1.0, 10.0
"""The first pause between two such tries, which doubles, and the longest."""


async def collect(trainer: Trainer, step: int) -> list[list[Rollout]]:
    """The step's groups. Where rewards that used to work fail altogether, the step is sampled again later."""
    before, tries = trainer.stream.state(), 0
    while True:
        groups = await _sample(trainer, step)
        if not trainer.scored or any(rollout.reward is not None for group in groups for rollout in group):
            return groups
        tries += 1
        _report_outage(trainer, step, tries, groups)
        trainer.stream.restore(before)
        await asyncio.sleep(retries.pause(tries, *OUTAGE_SECONDS))


def _report_outage(trainer: Trainer, step: int, tries: int, groups: Sequence[Sequence[Rollout]]) -> None:
    reason = most_common_error(groups)
    if tries >= OUTAGE_TRIES:
        raise RewardError(
            f"Rewards have failed since step {step + 1}: {tries} tries of it got none. The most common reason: "
            f"{reason}. Put the reward or its judge right, then resume the run."
        )
    trainer.emit(
        "outage", step=step, tries=tries,
        message=f"No rollout of step {step + 1} got a reward ({reason}): it is tried again, {tries} of "
        f"{OUTAGE_TRIES} times so far.",
    )  # fmt: skip


async def _sample(trainer: Trainer, step: int) -> list[list[Rollout]]:
    """The step's groups; those without signal are replaced by fresh prompts, up to a limit."""
    config = trainer.config
    draw = Draw("train", step, config.rollouts.group_size, trainer.learner.policy.temperature)
    rule = _rule(trainer)
    groups: list[list[Rollout]] = []
    wanted, extra = config.rollouts.prompts_per_step, config.extra_groups
    seen: set[str] = set()
    first, trainer.first_groups = trainer.first_groups, []
    while wanted and (examples := trainer.stream.take(wanted, without=seen)):
        seen |= {example["id"] for example in examples}
        fresh, first = first or await trainer.sampler.sample(examples, draw, trainer.on_group), []
        silent = sum(not assign_advantages(group, rule) for group in fresh)
        groups += fresh
        wanted = min(silent, extra)
        extra -= wanted
    for group in groups:
        _observe(trainer, group)
    return groups


def _rule(trainer: Trainer) -> AdvantageRule:
    config, lowest = trainer.config.algorithm, trainer.monitor.history.lowest
    cut = CutOff(config.cut_off, config.cut_off_penalty, trainer.config.rollouts.max_new_tokens, lowest)
    return AdvantageRule(config.advantage, config.leave_one_out, config.min_scored, cut)


def _observe(trainer: Trainer, group: Sequence[Rollout]) -> None:
    """Record how often the model solves this row, for the curriculum."""
    gold, primary = trainer.progress.gold, trainer.primary
    scored = [rollout for rollout in group if rollout.reward is not None]
    # Without a primary component, a task is solved by all that known solutions earn, which need not be 1.
    named = primary.get(group[0].env) if isinstance(primary, Mapping) else primary
    full = metrics.FULL_REWARD if gold is None or named else gold
    if scored:
        rate = fmean(metrics.solved(rollout, primary, full) for rollout in scored)
        trainer.stream.observe(group[0].example_id, rate)


async def demonstrations(trainer: Trainer, groups: Sequence[Sequence[Rollout]]) -> list[TokenSequence]:
    """Solutions for groups without signal whose samples earn less: those are learned from in their place."""
    solver, config = trainer.solver, trainer.config.algorithm
    if solver is None or config.guidance == "off":
        return []
    found: list[TokenSequence] = []
    rows = {row["id"]: row for row in trainer.stream.examples}
    for index, group in enumerate(groups):
        silent = [rollout.reward for rollout in group if rollout.discarded == NO_SIGNAL]
        paid = [reward for reward in silent if reward is not None]
        if len(paid) < max(2, config.min_scored * len(group)):
            continue
        row = rows[group[0].example_id]
        solution = await solver.solve(row)
        if solution is not None and solution.reward > max(paid) + solver.margin(row, solution.reward):
            found.append(replace(solution.sequence, group=index, shown=True))
    return found
