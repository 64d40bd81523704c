"""Solutions as exact tokens: played through the environment like rollouts, and kept when they earn a reward.

A `Solver` knows the solutions of an environment's training rows. It finds out how they are written on the first call,
which takes a second or two, and solves each row once. Held-out rows are never given to it. Each part of a composed
environment has its own way of writing answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benchmax.doctor.first_samples import MEASURED, known_from, rows_by_part
from benchmax.doctor.gold.answer_search import Gold, GoldFinder
from benchmax.doctor.gold.demonstrations import Demonstration, Demonstrator
from benchmax.doctor.learning_signal import Known
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.types import Example
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.metrics import is_full
from benchmax.models.base import Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.warm_start.forced_model import ForcedModel, demonstration_sequence

MeanProbability = Callable[[list[TokenSequence]], float | None]
SEARCH_SECONDS = 30.0
"""For finding out how good answers are written."""
SOLVE_SECONDS = 60.0
"""For searching tool calls, over all rows."""


@dataclass(slots=True)
class Solution:
    """A solution of a row, to learn from."""

    example_id: str
    sequence: TokenSequence
    reward: float
    source: str
    rollout: Rollout


class Solver:
    """Solves training rows of one environment."""

    def __init__(self, host: EnvHost, chat: ChatTokens, settings: RolloutSettings, rows: Sequence[Example]) -> None:
        # Limits of turns and calls hold as in training; those on the length of an answer do not apply to a given one.
        unlimited = replace(settings, max_tokens=None, sampling=Sampling(max_tokens=None))
        self.host, self.chat, self.rows = host, chat, list(rows)
        self.player = ProbePlayer(host, unlimited)
        self._demonstrators: dict[str, Demonstrator] = {}
        """By part; each knows how its good answers are written."""
        self._solutions: dict[str, Solution | None] = {}
        self._finding = asyncio.Lock()

    async def gold(self, part: str) -> Gold:
        """How good answers are written."""
        return (await self._demonstrator(part)).gold

    async def _demonstrator(self, part: str) -> Demonstrator:
        async with self._finding:
            if part not in self._demonstrators:
                rows = [row for row in self.rows if self.host.part_of(row) == part]
                tools = (await self.host.toolbox(part)).tools
                gold = await GoldFinder(self.player, tools, SEARCH_SECONDS).find(rows)
                self._demonstrators[part] = Demonstrator(self.player, gold, tools, SOLVE_SECONDS)
            return self._demonstrators[part]

    async def known(self, mean_probability: MeanProbability = lambda sequences: None) -> dict[str, Known]:
        """What the signal of each part is measured against; `mean_probability` is that of its solutions."""
        known: dict[str, Known] = {}
        for part, rows in rows_by_part(self.host, self.rows).items():
            shown = await self.solve_all(rows[:MEASURED])
            rewards, sequences = [each.reward for each in shown], [each.sequence for each in shown]
            probable = await asyncio.to_thread(mean_probability, sequences) if shown else None
            known[part] = await known_from(self.player, await self.gold(part), rewards, rows, probable)
        return known

    def margin(self, example: Example, paid: float) -> float:
        """By how much more than the samples a solution must earn to be shown."""
        known = self._demonstrators.get(self.host.part_of(example))
        return 0.05 * abs(paid - (known.gold.floor if known else 0.0))

    async def solve_all(self, examples: Iterable[Example]) -> list[Solution]:
        """The solutions of those rows that have one."""
        return [solution for example in examples if (solution := await self.solve(example)) is not None]

    async def solve(self, example: Example) -> Solution | None:
        """The solution of a row; None when there is none that earns."""
        if example["id"] not in self._solutions:
            demonstrator = await self._demonstrator(self.host.part_of(example))
            found = await demonstrator.solve(example)
            self._solutions[example["id"]] = None if found is None else await self._tokenise(found)
        return self._solutions[example["id"]]

    async def _tokenise(self, found: Demonstration) -> Solution | None:
        """The demonstration in the model's tokens; None unless it earns again what it earned."""
        model = ForcedModel(self.chat, found.turns)
        rollout = await run_rollout(self.host, found.example, model, self.player.settings)
        if self.player.grouped:  # a reward that compares siblings cannot be earned alone
            rollout.reward = found.reward
        if not rollout.tokens or rollout.reward is None or not is_full(rollout.reward, found.reward):
            return None
        sequence = demonstration_sequence(rollout.tokens)
        if len(sequence.ids) > self.chat.context:
            return None
        return Solution(found.example["id"], sequence, found.reward, found.source, rollout)
