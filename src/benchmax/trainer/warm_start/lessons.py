"""Solutions as exact tokens: played through the environment like rollouts, and kept when they are paid.

A `Guide` knows the solutions of an environment's training rows. It finds out how they are written when it is first
asked, which takes a second or two, and solves each row once. Held-out rows are never given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmax.doctor.first_samples import MEASURED, known_from
from benchmax.doctor.gold.demonstrations import Demonstration, Demonstrator
from benchmax.doctor.gold.finder import Gold, GoldFinder
from benchmax.doctor.learning_signal import Known
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.types import Example
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Sampling
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.warm_start.spoken import SpokenModel, lesson_sequence

ChanceOf = Callable[[list[TokenSequence]], float | None]
SEARCH_SECONDS = 30.0
"""For finding out how good answers are written."""
SOLVE_SECONDS = 60.0
"""For searching tool calls, over all rows."""


@dataclass(slots=True)
class Lesson:
    """A solution to learn from."""

    example_id: str
    sequence: TokenSequence
    reward: float
    source: str
    rollout: Rollout


class Guide:
    """Solves training rows of one environment."""

    def __init__(self, host: EnvHost, chat: ChatTokens, settings: RolloutSettings, rows: Sequence[Example]) -> None:
        # Budgets of turns and calls hold as in training; how long an answer may be does not matter to what is told.
        told = replace(settings, max_tokens=None, sampling=Sampling(max_tokens=None))
        self.host, self.chat, self.rows = host, chat, list(rows)
        self.player = ProbePlayer(host, told)
        self._gold: Gold | None = None
        self._demonstrator: Demonstrator | None = None
        self._lessons: dict[str, Lesson | None] = {}
        self._finding = asyncio.Lock()

    async def gold(self) -> Gold:
        """How good answers are written."""
        async with self._finding:
            if self._gold is None:
                tools = (await self.host.toolbox()).tools
                self._gold = await GoldFinder(self.player, tools, SEARCH_SECONDS).find(self.rows)
                self._demonstrator = Demonstrator(self.player, self._gold, tools, SOLVE_SECONDS)
        return self._gold

    async def known(self, chance: ChanceOf = lambda lessons: None) -> Known:
        """What the signal is measured against. `chance` tells how probable solutions are."""
        gold = await self.gold()
        shown = [lesson for row in self.rows[:MEASURED] if (lesson := await self.lesson(row)) is not None]
        probable = await asyncio.to_thread(chance, [lesson.sequence for lesson in shown]) if shown else None
        return await known_from(self.player, gold, [lesson.reward for lesson in shown], self.rows, probable)

    def margin(self, paid: float) -> float:
        """By how much a solution must be paid more to be worth showing."""
        floor = self._gold.floor if self._gold else 0.0
        return 0.05 * abs(paid - floor)

    async def lesson(self, example: Example) -> Lesson | None:
        """The solution of a row; None when there is none that earns."""
        if example["id"] not in self._lessons:
            await self.gold()
            assert self._demonstrator is not None
            shown = await self._demonstrator.solve(example)
            self._lessons[example["id"]] = None if shown is None else await self._told(shown)
        return self._lessons[example["id"]]

    async def _told(self, shown: Demonstration) -> Lesson | None:
        """The demonstration in the model's tokens; it must earn again what it earned."""
        model = SpokenModel(self.chat, shown.turns)
        rollout = await run_rollout(self.host, shown.example, model, self.player.settings)
        if self.player.grouped:  # what siblings are compared by, one alone does not earn
            rollout.reward = shown.reward
        if not rollout.tokens or rollout.reward is None or rollout.reward < shown.reward - 1e-6:
            return None
        sequence = lesson_sequence(rollout.tokens)
        if len(sequence.ids) > self.chat.context:
            return None
        return Lesson(shown.example["id"], sequence, shown.reward, shown.source, rollout)
