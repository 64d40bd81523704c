"""Score saved rollouts again, after a reward was edited, without calling the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from copy import copy

from benchmax import limits
from benchmax.concurrency import all_or_cancel
from benchmax.rollouts.groups import GroupBarrier
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import open_rollout
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import finish_group, score
from benchmax.rollouts.settings import RolloutSettings


async def replay(
    host: EnvHost,
    rollouts: Iterable[Rollout],
    settings: RolloutSettings = RolloutSettings(),
    *,
    concurrency: int = limits.ROLLOUTS_AT_ONCE,
) -> AsyncIterator[tuple[Rollout, Rollout]]:
    """Yield each saved rollout with a copy that was scored again, group by group.

    Rewards that read the state of tools (files, servers) see a new, empty state: only what is in the record can be
    scored again. Rollouts that failed before they could be scored stay as they are.
    """
    groups: dict[tuple[str, int | None, str], list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault((rollout.example_id, rollout.step, rollout.split), []).append(rollout)
    listed = list(groups.values())
    together = host.overrides("compute_group_reward")
    largest = max(map(len, listed), default=1) if together else 1
    slots = asyncio.Semaphore(max(1, concurrency // largest))
    rescore = _rescore_together if together else _rescore_each
    for batch in (listed[at : at + concurrency] for at in range(0, len(listed), concurrency)):
        fresh = await all_or_cancel(rescore(host, group, settings, slots) for group in batch)
        for before, after in zip(batch, fresh, strict=True):
            for pair in zip(before, after, strict=True):
                yield pair


async def _rescore_each(
    host: EnvHost, group: list[Rollout], settings: RolloutSettings, slots: asyncio.Semaphore
) -> list[Rollout]:
    """Score siblings again, each in a slot."""

    async def one(rollout: Rollout) -> None:
        async with slots:
            await _rescore(host, rollout, settings, None)

    fresh = list(map(unscored_copy, group))
    await all_or_cancel(map(one, fresh))
    finish_group(host, fresh, settings)
    return fresh


async def _rescore_together(
    host: EnvHost, group: list[Rollout], settings: RolloutSettings, slots: asyncio.Semaphore
) -> list[Rollout]:
    """Score siblings again that are compared: the group is in a slot, and none is released before it is scored."""
    fresh = list(map(unscored_copy, group))
    barrier = GroupBarrier(host, settings, len(fresh))
    async with slots:
        await all_or_cancel(_rescore(host, rollout, settings, barrier) for rollout in fresh)
    finish_group(host, fresh, settings)
    return fresh


async def _rescore(host: EnvHost, rollout: Rollout, settings: RolloutSettings, barrier: GroupBarrier | None) -> None:
    opened = open_rollout(host, rollout, settings) if rollout.scorable else nullcontext(False)
    async with opened as ready:
        if ready:
            await score(host, rollout, settings)
        if barrier:
            await barrier.arrive(rollout)


def unscored_copy(saved: Rollout) -> Rollout:
    """The rollout as it was before it was scored."""
    rollout = copy(saved)
    rollout.rewards, rollout.unscored, rollout.reward = {}, {}, None
    rollout.seconds, rollout.logs = dict(saved.seconds), list(saved.logs)
    if saved.termination in (Termination.REWARD_ERROR, Termination.GROUP_REWARD_ERROR):
        rollout.termination = Termination.FINISHED
    if rollout.scorable:
        rollout.error = None  # a rollout that can be scored did not fail: this error came from scoring
    rollout.ok = False
    return rollout
