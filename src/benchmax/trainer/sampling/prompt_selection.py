"""Which prompts come next: seeded epochs over the training rows, or a curriculum over them.

Parts of a composed environment are spread evenly over an epoch, so that every step has prompts of each.

The state is small and exact, so a resumed run draws the prompts an unbroken one would have drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from benchmax.envs.composed.parts import part_of
from benchmax.envs.types import Example

OLD_RATE_SHARE = 0.5
"""Share of the old pass rate that survives a new observation."""
MIN_CHANCE = 0.1
"""Least probability that an example is taken when its turn comes."""
SEEN_SHARE = 0.5
"""Share of the rows that must have been seen before `auto` judges them."""
ALWAYS_SOLVED, NEVER_SOLVED = 0.95, 0.05
UNEVEN_SHARE = 0.25
"""Share of seen rows that are solved always or never, from which on `auto` draws by pass rate."""
MAX_PASSES = 20
"""Passes over the rows after which those that the curriculum refused are taken after all."""


class PromptStream:
    """An endless shuffled stream of examples."""

    def __init__(self, examples: Sequence[Example], seed: int, curriculum: str = "none") -> None:
        self.examples = list(examples)
        self.seed = seed
        self.curriculum = curriculum
        self.drawn = 0
        """Positions passed in the stream, including examples that the curriculum refused."""
        self.rates: dict[str, float] = {}
        self._parts = Counter(map(part_of, self.examples))
        self._different = len({example["id"] for example in self.examples})
        self._drawing_by_rate = False
        self._epoch = -1
        self._order: list[int] = []

    def take(self, count: int, without: Collection[str] = ()) -> list[Example]:
        """The next prompts, all different and none of `without`: fewer than asked for when there are no more rows."""
        count = max(0, min(count, self._different - len(without)))
        self._drawing_by_rate = self.by_pass_rate
        taken: dict[str, Example] = {}
        refused: dict[str, Example] = {}
        for _ in range(MAX_PASSES * len(self.examples)):
            if len(taken) == count:
                break
            example = self._next()
            if example["id"] not in taken and example["id"] not in without:
                (taken if self._wanted(example) else refused)[example["id"]] = example
        for name, example in refused.items():
            if len(taken) < count:
                taken.setdefault(name, example)
        return list(taken.values())

    def observe(self, example_id: str, pass_rate: float) -> None:
        """Record how often the model solves an example."""
        known = self.rates.get(example_id, pass_rate)
        self.rates[example_id] = OLD_RATE_SHARE * known + (1 - OLD_RATE_SHARE) * pass_rate

    def state(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "rates": dict(self.rates) if self.curriculum != "none" else {}}

    @property
    def by_pass_rate(self) -> bool:
        """Whether rows are drawn by their pass rate."""
        if self.curriculum != "auto":
            return self.curriculum == "pass_rate"
        if len(self.rates) < SEEN_SHARE * self._different:
            return False
        settled = sum(rate >= ALWAYS_SOLVED or rate <= NEVER_SOLVED for rate in self.rates.values())
        return UNEVEN_SHARE <= settled / len(self.rates) < 1

    def restore(self, state: Mapping[str, Any]) -> None:
        self.drawn, self.rates = state["drawn"], dict(state["rates"])

    def _next(self) -> Example:
        epoch, place = divmod(self.drawn, len(self.examples))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self.examples)))
            random.Random(f"{self.seed} epoch {epoch}").shuffle(self._order)
            if len(self._parts) > 1:
                self._order = self._spread(self._order)
        self.drawn += 1
        return self.examples[self._order[place]]

    def _spread(self, order: list[int]) -> list[int]:
        """The same order within each part, the parts spread evenly."""
        passed: Counter[str] = Counter()
        places: dict[int, tuple[float, int]] = {}
        turns = {part: turn for turn, part in enumerate(self._parts)}
        for index in order:
            part = part_of(self.examples[index])
            places[index] = (passed[part] + 0.5) / self._parts[part], turns[part]
            passed[part] += 1
        return sorted(order, key=places.__getitem__)

    def _wanted(self, example: Example) -> bool:
        if example["id"] not in self.rates or not self._drawing_by_rate:
            return True
        rate = self.rates[example["id"]]
        chance = max(MIN_CHANCE, 4 * rate * (1 - rate))
        return random.Random(f"{self.seed} draw {self.drawn}").random() < chance
