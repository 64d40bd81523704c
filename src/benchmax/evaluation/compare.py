"""Two sets of rollouts on the same examples, paired by example id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmax.evaluation.report import by_example
from benchmax.evaluation.statistics import Estimate, estimate_difference
from benchmax.rollouts.record import Rollout


@dataclass(frozen=True, slots=True)
class Pair:
    """One example in both sets."""

    example_id: str
    base: float
    other: float
    base_rollouts: list[Rollout]
    other_rollouts: list[Rollout]

    @property
    def delta(self) -> float:
        return self.other - self.base

    def to_dict(self) -> dict[str, Any]:
        prompt = self.base_rollouts[0].prompt
        return {
            "example_id": self.example_id,
            "prompt": prompt[-1].get("content") if prompt else "",
            "base": self.base,
            "other": self.other,
            "delta": self.delta,
        }


@dataclass(slots=True)
class Comparison:
    """The other set against the base: positive deltas mean that the other is better."""

    pairs: list[Pair]
    """Sorted by regression: where the other lost most comes first."""
    reward: Estimate | None = None
    components: dict[str, Estimate] = field(default_factory=dict)
    only_in_base: int = 0
    only_in_other: int = 0
    scored_only_in_base: int = 0
    """Examples that both played and only the base has a score for."""
    scored_only_in_other: int = 0
    scored_in_neither: int = 0
    new_components: list[str] = field(default_factory=list)
    """Components that only the other has."""
    gone_components: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.reward is None:
            return "nothing to compare: no example is scored in both"
        if self.reward.low > 0:
            return "better"
        if self.reward.high < 0:
            return "worse"
        return "no clear difference"

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reward_delta": self.reward.to_dict() if self.reward and self.reward.n > 1 else None,
            "component_deltas": {name: e.to_dict() for name, e in self.components.items() if e.n > 1},
            "examples": len(self.pairs),
            "only_in_base": self.only_in_base,
            "only_in_other": self.only_in_other,
            "scored_only_in_base": self.scored_only_in_base,
            "scored_only_in_other": self.scored_only_in_other,
            "scored_in_neither": self.scored_in_neither,
            "new_components": self.new_components,
            "gone_components": self.gone_components,
            "pairs": [pair.to_dict() for pair in self.pairs],
        }


def compare(base: Iterable[Rollout], other: Iterable[Rollout]) -> Comparison:
    """Pair by example id; the interval is over the paired differences."""
    base, other = list(base), list(other)
    left = by_example(rollout for rollout in base if rollout.reward is not None)
    right = by_example(rollout for rollout in other if rollout.reward is not None)
    shared = left.keys() & right.keys()
    pairs = [Pair(key, _reward(left[key]), _reward(right[key]), left[key], right[key]) for key in shared]
    pairs.sort(key=lambda pair: (pair.delta, pair.example_id))
    comparison = Comparison(pairs, estimate_difference([(pair.other, pair.base) for pair in pairs]))
    _count_left_out(comparison, left.keys(), right.keys(), _ids(base), _ids(other))
    comparison.new_components, comparison.gone_components = _new_names(base, other), _new_names(other, base)
    for name in sorted(_components(pairs)):
        value = _component(name)
        delta = estimate_difference([(value(pair.other_rollouts), value(pair.base_rollouts)) for pair in pairs])
        if delta:
            comparison.components[name] = delta
    return comparison


def _count_left_out(
    comparison: Comparison, left: Set[str], right: Set[str], in_base: Set[str], in_other: Set[str]
) -> None:
    """Examples that are in no pair: absent on one side, or there without a score."""
    both = in_base & in_other
    comparison.only_in_base, comparison.only_in_other = len(in_base - both), len(in_other - both)
    comparison.scored_only_in_base = len(both & left - right)
    comparison.scored_only_in_other = len(both & right - left)
    comparison.scored_in_neither = len(both - left - right)


def _ids(rollouts: Iterable[Rollout]) -> Set[str]:
    return {rollout.example_id for rollout in rollouts}


def _new_names(before: Iterable[Rollout], after: Iterable[Rollout]) -> list[str]:
    """Components scored after and unknown before; none if nothing was scored before."""
    old = {name for rollout in before for name in rollout.rewards}
    tried = {name for rollout in before for name in rollout.unscored}
    return sorted({name for rollout in after for name in rollout.rewards} - old - tried) if old else []


def _reward(rollouts: Iterable[Rollout]) -> float:
    return fmean(rollout.reward or 0.0 for rollout in rollouts)


def _component(name: str) -> Callable[[list[Rollout]], float]:
    return lambda rollouts: fmean(rollout.rewards[name] for rollout in rollouts)


def _components(pairs: Iterable[Pair]) -> set[str]:
    """Components that every sample on both sides has."""
    names: set[str] | None = None
    for pair in pairs:
        for rollout in (*pair.base_rollouts, *pair.other_rollouts):
            names = set(rollout.rewards) if names is None else names & rollout.rewards.keys()
    return names or set()
