"""Whole solutions of examples, each played and scored, for a model that finds none by itself.

The first source that earns is used: the environment's own `demonstrate`; tool calls found by a search, where there are
tools; the gold answer in the form that earns. A row that none of them solves has no demonstration.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from benchmax.doctor.gold.answer_search import LEAST_TRUSTED, Gold, Way
from benchmax.doctor.gold.tool_search import Goal, ProgramSearch
from benchmax.doctor.probe_answers import REFUSAL
from benchmax.doctor.probe_player import ProbePlayer
from benchmax.envs.demonstration import Turn
from benchmax.envs.types import Example, ToolDefinition
from benchmax.errors import describe_failure
from benchmax.metrics import pays_more
from benchmax.rollouts.demonstrations import DONE, play_demonstration
from benchmax.rollouts.record import Rollout

logger = logging.getLogger(__name__)

SCRIPT, SEARCHED, GOLD = "demonstrate", "searched", "gold"
MOST_WAYS = 4
"""Ways to write the gold answer that are tried on a row which the best one does not solve."""
MOST_MISSES = 4
"""Rows without a solution by tool calls, from the first on, after which the search ends."""


@dataclass(slots=True)
class Demonstration:
    """A solution that was played."""

    example: Example
    turns: list[Turn]
    reward: float
    source: str
    """`demonstrate`, `searched` or `gold`."""


class Demonstrator:
    """Solves examples of one environment."""

    def __init__(
        self, player: ProbePlayer, gold: Gold, tools: Sequence[ToolDefinition] = (), seconds: float = 60.0
    ) -> None:
        self.player, self.gold = player, gold
        self.scripted = player.host.overrides("demonstrate")
        self.error = ""
        """What the environment's own `demonstrate` raised."""
        self._search = ProgramSearch(player, tools, seconds) if tools else None
        self._misses = 0
        self._solved = False

    async def solve(self, example: Example) -> Demonstration | None:
        """The best demonstration of one example; None when nothing earns more than nonsense."""
        if self.scripted and (played := await self.perform(example)) is not None:
            rollout, turns = played
            if rollout.reward is not None and pays_more(rollout.reward, self.gold.floor):
                return Demonstration(example, turns, rollout.reward, SCRIPT)
        written, best = await self._from_gold(example), self.gold.best
        if written is not None and written.reward < LEAST_TRUSTED and best is not None and best.guessed:
            written = None  # made from columns that hold no answer: half a solution, which teaches to stop there
        if self._search is None or (self._misses >= MOST_MISSES and not self._solved):
            return written
        found = await self._from_search(example, written)
        self._solved |= found is not None
        self._misses = 0 if found is not None else self._misses + 1
        # Where calls lead to the answer, a solution without them would teach the model to guess.
        return found or (None if self._solved else written)

    async def perform(self, example: Example) -> tuple[Rollout, list[Turn]] | None:
        """Play the environment's own `demonstrate`: the rollout and its turns. None where it has none, or fails."""
        try:
            played = await play_demonstration(self.player.host, example, self.player.settings)
        except Exception as error:
            self.error = describe_failure(error)
            logger.warning("demonstrate failed: %s", self.error)
            return None
        if played is not None and played[0].error is not None:
            self.error = played[0].error.message
        return played

    async def _from_gold(self, example: Example) -> Demonstration | None:
        """The answer written the best way; where that earns nothing, the other ways and a refusal."""
        best = self.gold.best
        ways = [way for way in self.gold.ways[:MOST_WAYS] if not way.with_tools]
        shown = await self._written(example, [best] if best and not best.with_tools else ways[:1])
        if shown is not None and best is not None and not pays_more(self.gold.earned[best], shown.reward):
            return shown
        others = await self._written(example, ways, [REFUSAL])
        return max((each for each in (shown, others) if each), key=lambda each: each.reward, default=None)

    async def _written(self, example: Example, ways: Sequence[Way], texts: Sequence[str] = ()) -> Demonstration | None:
        written = [text for way in ways if (text := self.gold.text(example, way)) is not None]
        probes = [self.gold.probe(example, text) for text in dict.fromkeys((*written, *texts))]
        if not probes:
            return None
        played = await self.player.play(example, probes)
        scored = [each for each in played if each.kind == "gold" and each.total is not None]
        best = max(scored, key=lambda each: each.total or 0.0, default=None)
        if best is None or best.total is None or not pays_more(best.total, self.gold.floor):
            return None
        probe = self.gold.probe(example, best.text)
        return Demonstration(example, [*probe.turns, best.text], best.total, GOLD)

    async def _from_search(self, example: Example, written: Demonstration | None) -> Demonstration | None:
        """A solution by tool calls, where that earns at least what the answer alone does."""
        assert self._search is not None
        text = (self.gold.text(example) if self.gold.works else None) or DONE
        without_calls = written.reward if written else max(self.gold.floor, 0.0)
        goal = Goal(example, self.gold.truth(example), text, self.gold.floor, without_calls)
        found = await self._search.solve(goal)
        if found is None:
            return None
        calls, said, reward = found
        return Demonstration(example, [*((call,) for call in calls), said], reward, SEARCHED)
