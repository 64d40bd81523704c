"""A trainer's batch played: one rollout for each of its rows, all groups at once, in the order of the rows.

No group is lost. A rollout that fails comes back as a record with its termination reason; should a whole group fail, so
does each of its rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from benchmax import limits
from benchmax.concurrency import all_or_cancel
from benchmax.envs.types import Example
from benchmax.errors import RolloutError
from benchmax.models.base import ModelClient
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import fail, new_rollout
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.settings import RolloutSettings

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


async def play_batch(
    host: EnvHost,
    rows: Sequence[Example],
    model: ModelClient,
    settings: RolloutSettings = RolloutSettings(),
    *,
    groups: Sequence[Hashable] | None = None,
    concurrency: int = limits.ROLLOUTS_AT_ONCE,
    split: str = "train",
    step: int | None = None,
) -> list[Rollout]:
    """One rollout for each row, in the order of the rows.

    Rows with the same entry in `groups` are siblings, scored together (`compute_group_reward`); without it, rows with
    the same example are.
    """
    places = places_of([row["id"] for row in rows] if groups is None else groups)
    largest = max(map(len, places.values()), default=1)
    gate = asyncio.Semaphore(max(1, concurrency // largest))

    async def one(indices: list[int]) -> list[Rollout]:
        async with gate:
            example, samples = rows[indices[0]], range(len(indices))
            try:
                return await run_group(host, example, model, settings, samples=samples, split=split, step=step)
            except Exception as error:
                logger.exception("A group of rollouts failed; its rows go without a reward.")
                lost = [new_rollout(host, example, model, sample=n, split=split, step=step) for n in samples]
                for rollout in lost:
                    fail(rollout, error, Termination.ENV_ERROR, "run_group")
                return lost

    return in_places(places.values(), await all_or_cancel(map(one, places.values())))


def places_of(keys: Iterable[K]) -> dict[K, list[int]]:
    """Where each key stands."""
    places: dict[K, list[int]] = {}
    for index, key in enumerate(keys):
        places.setdefault(key, []).append(index)
    return places


def in_places(places: Iterable[Sequence[int]], parts: Iterable[Sequence[T]]) -> list[T]:
    """The items of all parts, each in its place."""
    found = {i: each for at, part in zip(places, parts, strict=True) for i, each in zip(at, part, strict=True)}
    return [found[index] for index in range(len(found))]


def summary(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Numbers for a trainer's log: how rollouts ended, what they earned, how many tools they called."""
    if not rollouts:
        return {}
    count = len(rollouts)
    numbers = {
        "benchmax/scored": sum(rollout.reward is not None for rollout in rollouts) / count,
        "benchmax/turns": sum(rollout.turns for rollout in rollouts) / count,
        "benchmax/tool_calls": sum(len(rollout.tool_events) for rollout in rollouts) / count,
    }
    for rollout in rollouts:
        ended = f"benchmax/ended/{rollout.termination.value}"
        numbers[ended] = numbers.get(ended, 0.0) + 1 / count
    for name in sorted({name for rollout in rollouts for name in rollout.rewards}):
        values = [rollout.rewards[name] for rollout in rollouts if name in rollout.rewards]
        numbers[f"benchmax/reward/{name}"] = sum(values) / len(values)
    return numbers


def failures(rollouts: Sequence[Rollout]) -> str | None:
    """How many rollouts could not be played or scored, and why the first of them, for a log; None when all could."""
    reasons = [reason for rollout in rollouts for reason in _reasons(rollout)]
    return f"{len(reasons)} of {len(rollouts)} rollouts failed; the first: {reasons[0]}" if reasons else None


def _reasons(rollout: Rollout) -> Iterator[str]:
    """Where and why a rollout failed, in one text; none when it did not."""
    if rollout.error is not None:
        yield str(rollout.error)
    elif rollout.unscored:
        yield "; ".join(f"{name}: {why}" for name, why in rollout.unscored.items())


class FailedBatches:
    """Counts the batches in a row that nothing could be learned from: a trainer would go on with them for ever."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def observe(self, rollouts: Sequence[Rollout]) -> None:
        """Log what failed; raises RolloutError after too many batches without a scored rollout."""
        scored = any(rollout.reward is not None for rollout in rollouts)
        self._in_a_row = 0 if scored or not rollouts else self._in_a_row + 1
        if (says := failures(rollouts)) is None:
            return
        if self._in_a_row >= limits.FAILED_BATCHES:
            raise RolloutError(
                f"The last {self._in_a_row} batches had no rollout with a reward. {says.rstrip('.')}. "
                "Put that right, then resume from the trainer's last checkpoint."
            )
        logger.warning("%s", says)
