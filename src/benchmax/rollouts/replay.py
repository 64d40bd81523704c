"""Score saved rollouts again, after a reward was edited, without calling the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from copy import copy

from benchmax import limits
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import opened
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import finish, level, score, score_group
from benchmax.rollouts.settings import RolloutSettings


async def replay(
    host: EnvHost,
    rollouts: Iterable[Rollout],
    settings: RolloutSettings = RolloutSettings(),
    *,
    concurrency: int = limits.ROLLOUTS_AT_ONCE,
) -> AsyncIterator[tuple[Rollout, Rollout]]:
    """Give each saved rollout with its freshly scored twin, group by group.

    Rewards that read the state of tools (files, servers) see a new, empty state: only what is in the record can be
    judged again. Rollouts that never reached an end worth scoring stay as they are.
    """
    groups: dict[tuple[str, int | None, str], list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault((rollout.example_id, rollout.step, rollout.split), []).append(rollout)
    gate = asyncio.Semaphore(concurrency)
    for batch in _chunks(list(groups.values()), concurrency):
        fresh = await asyncio.gather(*(_rescore_group(host, group, settings, gate) for group in batch))
        for before, after in zip(batch, fresh, strict=True):
            for pair in zip(before, after, strict=True):
                yield pair


def _chunks(groups: list[list[Rollout]], size: int) -> Iterable[list[list[Rollout]]]:
    for start in range(0, len(groups), size):
        yield groups[start : start + size]


async def _rescore_group(
    host: EnvHost, group: list[Rollout], settings: RolloutSettings, gate: asyncio.Semaphore
) -> list[Rollout]:
    fresh = list(await asyncio.gather(*(_rescore(host, rollout, settings, gate) for rollout in group)))
    if host.overrides("compute_group_reward"):
        await score_group(host, fresh, settings)
    level(fresh)
    for rollout in fresh:
        finish(host.env, rollout, settings)
    return fresh


async def _rescore(host: EnvHost, saved: Rollout, settings: RolloutSettings, gate: asyncio.Semaphore) -> Rollout:
    rollout = unscored_copy(saved)
    if not rollout.scorable:
        return rollout
    async with gate, opened(host, rollout, settings) as ready:
        if ready:
            await score(host, rollout, settings)
    return rollout


def unscored_copy(saved: Rollout) -> Rollout:
    """The rollout as it was before it was scored."""
    rollout = copy(saved)
    rollout.rewards, rollout.unscored, rollout.reward = {}, {}, None
    rollout.seconds, rollout.logs = dict(saved.seconds), list(saved.logs)
    if saved.termination in (Termination.REWARD_ERROR, Termination.GROUP_REWARD_ERROR):
        rollout.termination = Termination.FINISHED
    if rollout.scorable:
        rollout.error = None  # an end worth scoring is no error: this one came with the scoring
    rollout.ok = False
    return rollout
