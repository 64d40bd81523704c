"""Score saved rollouts again, after a reward was edited, without calling the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from copy import copy

from benchmax import limits
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import open_rollout
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.scoring import score, settle_group
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
    slots = asyncio.Semaphore(concurrency)
    listed = list(groups.values())
    for batch in (listed[at : at + concurrency] for at in range(0, len(listed), concurrency)):
        fresh = await asyncio.gather(*(_rescore_group(host, group, settings, slots) for group in batch))
        for before, after in zip(batch, fresh, strict=True):
            for pair in zip(before, after, strict=True):
                yield pair


async def _rescore_group(
    host: EnvHost, group: list[Rollout], settings: RolloutSettings, slots: asyncio.Semaphore
) -> list[Rollout]:
    fresh = list(await asyncio.gather(*(_rescore(host, rollout, settings, slots) for rollout in group)))
    await settle_group(host, fresh, settings)
    return fresh


async def _rescore(host: EnvHost, saved: Rollout, settings: RolloutSettings, slots: asyncio.Semaphore) -> Rollout:
    rollout = unscored_copy(saved)
    if not rollout.scorable:
        return rollout
    async with slots, open_rollout(host, rollout, settings) as ready:
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
        rollout.error = None  # a rollout that can be scored did not fail: this error came from scoring
    rollout.ok = False
    return rollout
