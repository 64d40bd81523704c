"""Two sets of scored rollouts on the same examples, paired by example. Nothing else in benchmax compares them.

A value is the mean of one example's samples, and an interval is over the paired differences of examples. Positive
differences mean that the other set is better than the base.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, TypeAlias

from benchmax.envs.reward_helpers import last_user_text
from benchmax.evaluation.report import by_example
from benchmax.evaluation.statistics import Estimate, estimate_difference
from benchmax.rollouts.record import Rollout

TOTAL = ""
"""The key of the total reward among the components; it sorts first."""
Scores: TypeAlias = Mapping[str, Sequence[Mapping[str, float]]]
"""For each example the scored rollouts: their components, and the total reward under `TOTAL`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One reward in both sets: the means of both, and the mean of the difference with its interval."""

    base: float
    other: float
    delta: Estimate

    @property
    def verdict(self) -> Literal["better", "worse", "no clear difference"]:
        if self.delta.low > 0:
            return "better"
        return "worse" if self.delta.high < 0 else "no clear difference"


def difference(pairs: Sequence[tuple[float, float]]) -> Difference | None:
    """The difference over (base, other) pairs, one for each example; None when there are none."""
    delta = estimate_difference([(other, base) for base, other in pairs])
    if delta is None:
        return None
    return Difference(fmean(base for base, _ in pairs), fmean(other for _, other in pairs), delta)


def compare_scores(base: Scores, other: Scores) -> dict[str, Difference]:
    """The total and every component that all rollouts have, over the examples both sets scored."""
    shared = sorted(base.keys() & other.keys())
    rollouts = [rollout for side in (base, other) for example in shared for rollout in side[example]]
    names = sorted(set.intersection(*map(set, rollouts))) if rollouts else []
    pairs = {name: [(_mean(base[key], name), _mean(other[key], name)) for key in shared] for name in names}
    return {name: found for name in names if (found := difference(pairs[name]))}


def _mean(rollouts: Iterable[Mapping[str, float]], name: str) -> float:
    return fmean(rollout[name] for rollout in rollouts)


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
        return {
            "example_id": self.example_id,
            "prompt": last_user_text(self.base_rollouts[0].messages),
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
    verdict: str = "nothing to compare: no example is scored in both"

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
    """Pair two sets of rollouts by example id, and compare the examples that both scored."""
    base, other = list(base), list(other)
    left = by_example(rollout for rollout in base if rollout.reward is not None)
    right = by_example(rollout for rollout in other if rollout.reward is not None)
    left_scores, right_scores = _scores(left), _scores(right)
    differences = compare_scores(left_scores, right_scores)
    pairs = [
        Pair(key, _mean(left_scores[key], TOTAL), _mean(right_scores[key], TOTAL), left[key], right[key])
        for key in left.keys() & right.keys()
    ]
    comparison = Comparison(sorted(pairs, key=lambda pair: (pair.delta, pair.example_id)))
    if (total := differences.pop(TOTAL, None)) is not None:
        comparison.reward, comparison.verdict = total.delta, total.verdict
    comparison.components = {name: found.delta for name, found in differences.items()}
    in_base, in_other = ({rollout.example_id for rollout in side} for side in (base, other))
    both = in_base & in_other
    comparison.only_in_base, comparison.only_in_other = len(in_base - both), len(in_other - both)
    comparison.scored_only_in_base = len(both & left.keys() - right.keys())
    comparison.scored_only_in_other = len(both & right.keys() - left.keys())
    comparison.scored_in_neither = len(both - left.keys() - right.keys())
    comparison.new_components, comparison.gone_components = _new_names(base, other), _new_names(other, base)
    return comparison


def _scores(groups: Mapping[str, Sequence[Rollout]]) -> dict[str, list[dict[str, float]]]:
    return {key: [{**each.rewards, TOTAL: each.reward or 0.0} for each in group] for key, group in groups.items()}


def _new_names(before: Iterable[Rollout], after: Iterable[Rollout]) -> list[str]:
    """Components scored after and unknown before; none if nothing was scored before."""
    old = {name for rollout in before for name in rollout.rewards}
    tried = {name for rollout in before for name in rollout.unscored}
    return sorted({name for rollout in after for name in rollout.rewards} - old - tried) if old else []
