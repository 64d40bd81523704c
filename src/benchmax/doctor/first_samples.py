"""Plays a model's first samples on an environment, to see whether it can learn there: `benchmax validate --model`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

from benchmax.doctor.gold.answer_search import Gold, GoldFinder
from benchmax.doctor.gold.demonstrations import Demonstrator
from benchmax.doctor.lazy_strategies import answer_form, earnings, play_lazily
from benchmax.doctor.learning_signal import Known, Signal, measure, together
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.types import Example
from benchmax.models.base import ModelClient, Sampling
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings

PROMPTS, SAMPLES = 8, 8
MEASURED = 8
"""Examples on which good and lazy answers are compared."""
MOST_TOKENS = 256
"""Tokens in one turn."""

OnProgress = Callable[[int, int], None]
"""Receives how many groups are done, and of how many."""


async def first_samples(
    host: EnvHost,
    examples: Sequence[Example],
    model: ModelClient,
    *,
    prompts: int = PROMPTS,
    samples: int = SAMPLES,
    max_tokens: int = MOST_TOKENS,
    seed: int = 0,
    on_group: OnProgress = lambda done, of: None,
    known: Mapping[str, Known] | None = None,
) -> Signal:
    """Play a few examples several times each, and forecast whether training would learn."""
    chosen = [
        example
        for rows in rows_by_part(host, examples).values()
        for example in Random(seed).sample(rows, min(prompts, len(rows)))
    ]
    settings = RolloutSettings(sampling=Sampling(max_tokens=max_tokens, seed=seed))
    known = known or await known_of(host, examples, settings)
    done = 0

    async def group(example: Example) -> list[Rollout]:
        nonlocal done
        played = await run_group(host, example, model, settings, samples=range(samples), split="signal")
        done += 1
        on_group(done, len(chosen))
        return played

    groups = await asyncio.gather(*map(group, chosen))
    return await measure_parts(host, groups, known)


def rows_by_part(host: EnvHost, examples: Sequence[Example]) -> dict[str, list[Example]]:
    """The rows of each part of a composed environment; all under the empty name in any other."""
    found: dict[str, list[Example]] = {}
    for example in examples:
        found.setdefault(host.part_of(example), []).append(example)
    return found


async def measure_parts(host: EnvHost, groups: Sequence[Sequence[Rollout]], known: Mapping[str, Known]) -> Signal:
    """What groups show against what is known; of a composed environment, part by part."""
    if not host.env.composed_of:
        return measure(groups, known.get("", Known()), tools=bool((await host.toolbox()).tools))
    signals: dict[str, Signal] = {}
    for part in known:
        own = [group for group in groups if group and group[0].env == part]
        signals[part] = measure(own, known[part], tools=bool((await host.toolbox(part)).tools))
    return together(signals)


async def known_of(host: EnvHost, examples: Sequence[Example], settings: RolloutSettings) -> dict[str, Known]:
    """What good, lazy and senseless answers earn here, by part."""
    unlimited = replace(settings, max_tokens=None, sampling=Sampling(max_tokens=None))
    player = ProbePlayer(host, unlimited)
    return {part: await _known(player, part, rows) for part, rows in rows_by_part(host, examples).items()}


async def _known(player: ProbePlayer, part: str, examples: Sequence[Example]) -> Known:
    tools = (await player.host.toolbox(part)).tools
    gold = await GoldFinder(player, tools).find(examples)
    solved = [await Demonstrator(player, gold, tools).solve(example) for example in examples[:MEASURED]]
    rewards = [each.reward for each in solved if each is not None]
    return await known_from(player, gold, rewards, examples)


async def known_from(
    player: ProbePlayer, gold: Gold, rewards: Sequence[float], examples: Sequence[Example], chance: float | None = None
) -> Known:
    """The same, from what known solutions earn, and how probable they are."""
    rows = examples[:MEASURED]
    played = await play_lazily(player, gold, rows, examples) if gold.works else []
    lazy = earnings(played, gold, examples)
    form = answer_form(gold, rows[0]) if gold.works and rows else None
    return Known(fmean(rewards) if rewards else None, gold.floor, form, lazy, chance)
