"""Many rollouts: the siblings of one example, and batches of groups."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Any

from benchmax import limits
from benchmax.concurrency import all_or_cancel
from benchmax.envs.types import Example
from benchmax.models.base import ModelClient, need_count
from benchmax.rollouts.arguments import check_example, check_examples, check_players
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import new_rollout, open_rollout, play, run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.scoring import finish_group, score, score_group
from benchmax.rollouts.settings import RolloutSettings

OnRollout = Callable[[Rollout], None]
SamplesOf = Callable[[Example], Sequence[int]]
"""Which samples of an example are to be played."""


async def run_group(
    host: EnvHost,
    example: Example,
    model: ModelClient,
    settings: RolloutSettings = RolloutSettings(),
    *,
    samples: Sequence[int],
    split: str = "eval",
    step: int | None = None,
    attempt: int = 0,
) -> list[Rollout]:
    """Play one example once for each of `samples`, all at once, and score the siblings together.

    A failed sibling is a record like the others, unless the environment's process ended during it: then it is played
    again (with `compute_group_reward`, the whole group). With `compute_group_reward`, no sibling is released before
    the group is scored, so that the reward can still read their state.
    """
    check_players(host, model, settings)
    check_example(example)
    group = _Group(host, example, model, settings, {"split": split, "step": step})
    rollouts = await group.play(samples, attempt)
    for again in range(1, limits.ROLLOUT_TRIES):
        if not any(rollout.lost for rollout in rollouts):
            break
        rollouts = await group.play_lost(rollouts, attempt + again, last=again == limits.ROLLOUT_TRIES - 1)
    finish_group(host, rollouts, settings)
    return rollouts


@dataclass(frozen=True, slots=True)
class _Group:
    """The samples of one prompt that are played together."""

    host: EnvHost
    example: Example
    model: ModelClient
    settings: RolloutSettings
    place: Mapping[str, Any]
    """Where they belong: their split and step."""

    async def play(self, samples: Sequence[int], attempt: int) -> list[Rollout]:
        """Each sample once, all at once."""
        barrier = GroupBarrier(self.host, self.settings, len(samples)) if self._scored_together else None
        if len(samples) == 1:
            return [await self._sibling(samples[0], attempt, barrier)]
        return await all_or_cancel(self._sibling(sample, attempt, barrier) for sample in samples)

    async def play_lost(self, rollouts: Sequence[Rollout], attempt: int, *, last: bool) -> list[Rollout]:
        """The rollouts, with those whose process ended played again; all of them when they are scored together."""
        together = self._scored_together
        due = [rollout.sample for rollout in rollouts if rollout.lost or together]
        # One of them may end the process: in the last try, played one after another, it costs no other.
        parts = [[sample] for sample in due] if last and not together else [due]
        async with self.host.alone() if last else nullcontext():
            anew = {each.sample: each for part in parts for each in await self.play(part, attempt)}
        return [anew.get(rollout.sample, rollout) for rollout in rollouts]

    @property
    def _scored_together(self) -> bool:
        return self.settings.score and self.host.overrides("compute_group_reward")

    def _sibling(self, sample: int, attempt: int, barrier: GroupBarrier | None) -> Coroutine[Any, Any, Rollout]:
        place: dict[str, Any] = {"sample": sample, "attempt": attempt, **self.place}
        if barrier is None:
            return run_rollout(self.host, self.example, self.model, self.settings, **place)
        return self._until_scored(new_rollout(self.host, self.example, self.model, **place), barrier)

    async def _until_scored(self, rollout: Rollout, barrier: GroupBarrier) -> Rollout:
        """Play a rollout and release it only when the whole group is scored."""
        host, settings = self.host, self.settings
        async with open_rollout(host, rollout, settings) as ready:
            if ready:
                await play(host, rollout, self.model, settings)
                if rollout.scorable:
                    await score(host, rollout, settings)
            await barrier.arrive(rollout)
        return rollout


class GroupBarrier:
    """Keeps siblings waiting until all have been played; the last to arrive scores the group."""

    def __init__(self, host: EnvHost, settings: RolloutSettings, size: int) -> None:
        self._host, self._settings, self._missing = host, settings, size
        self._rollouts: list[Rollout] = []
        self._scored = asyncio.Event()

    async def arrive(self, rollout: Rollout) -> None:
        self._rollouts.append(rollout)
        self._missing -= 1
        if self._missing == 0:
            self._rollouts.sort(key=lambda each: each.sample)
            await score_group(self._host, self._rollouts, self._settings)
            self._scored.set()
        await self._scored.wait()


async def run_groups(
    host: EnvHost,
    examples: Iterable[Example] | AsyncIterable[Example],
    model: ModelClient,
    settings: RolloutSettings = RolloutSettings(),
    *,
    group_size: int = 1,
    concurrency: int = limits.ROLLOUTS_AT_ONCE,
    split: str = "eval",
    step: int | None = None,
    samples_of: SamplesOf | None = None,
) -> AsyncGenerator[list[Rollout], None]:
    """Play every example, at most `concurrency` rollouts at once; yields each group as it finishes.

    Examples are read only as fast as they are played, so a stream of millions is fine. Close the iterator to
    cancel what is in flight. `samples_of` returns the samples of an example to play; all when None.
    """
    need_count("group_size", group_size)
    need_count("concurrency", concurrency)
    check_players(host, model, settings)
    check_examples(examples)
    all_samples = range(group_size)
    source = _with_samples(examples, samples_of or (lambda example: all_samples))
    most = max(1, concurrency // group_size)
    started = 0
    running: set[asyncio.Task[list[Rollout]]] = set()
    done: asyncio.Queue[asyncio.Task[list[Rollout]]] = asyncio.Queue()
    try:
        while True:
            while len(running) < most and (due := await anext(source, None)) is not None:
                example, samples = due
                group = run_group(host, example, model, settings, samples=samples, split=split, step=step)
                task = asyncio.create_task(group)
                task.add_done_callback(done.put_nowait)
                running.add(task)
                started += 1
                if started % 16 == 0:
                    await asyncio.sleep(0)  # let those begin; a thousand first steps at once would block the loop
            if not running:
                return
            task = await done.get()
            running.discard(task)
            yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def run_batch(
    host: EnvHost,
    examples: Iterable[Example] | AsyncIterable[Example],
    model: ModelClient,
    settings: RolloutSettings = RolloutSettings(),
    *,
    group_size: int = 1,
    concurrency: int = limits.ROLLOUTS_AT_ONCE,
    split: str = "eval",
    step: int | None = None,
    on_rollout: OnRollout | None = None,
) -> list[Rollout]:
    """Play every example; return the rollouts in the order of the examples. `on_rollout` gets each as it finishes."""
    positions: dict[str, int] = {}

    def samples_of(example: Example) -> Sequence[int]:
        positions.setdefault(example["id"], len(positions))
        return range(group_size)

    rollouts: list[Rollout] = []
    groups = run_groups(
        host,
        examples,
        model,
        settings,
        group_size=group_size,
        concurrency=concurrency,
        split=split,
        step=step,
        samples_of=samples_of,
    )
    async with aclosing(groups):
        async for group in groups:
            rollouts.extend(group)
            if on_rollout:
                for rollout in group:
                    on_rollout(rollout)
    return sorted(rollouts, key=lambda rollout: positions[rollout.example_id])


async def _with_samples(
    examples: Iterable[Example] | AsyncIterable[Example], samples_of: SamplesOf
) -> AsyncIterator[tuple[Example, Sequence[int]]]:
    """The examples with samples to play."""
    async for example in examples if isinstance(examples, AsyncIterable) else _aiter(examples):
        check_example(example)
        if samples := samples_of(example):
            yield example, samples


async def _aiter(examples: Iterable[Example]) -> AsyncIterator[Example]:
    for example in examples:
        yield example
