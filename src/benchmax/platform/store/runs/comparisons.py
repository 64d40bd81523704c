"""Two sets of scored rollouts on the same examples, paired by example: the whole reward, and each component.

The mathematics is `benchmax.evaluation`'s: a value is the mean of one example's samples, and the interval is over the
paired differences of examples.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmax.evaluation.statistics import Estimate, estimate_difference
from benchmax.platform.store.tables import RolloutRow

WHOLE = "reward"
"""The name of the whole reward among the components."""

Scores = dict[str, list[dict[str, float]]]
"""Every scored rollout of each example: its components, and the whole reward as `""`."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One component on both sides."""

    name: str
    ours: float
    other: float
    delta: Estimate

    @property
    def label(self) -> str:
        if self.delta.n > 1 and self.delta.low > 0:
            return "outperformed"
        if self.delta.n > 1 and self.delta.high < 0:
            return "comparison leads"
        return "closing in" if self.delta.mean < 0 else "no clear difference"


def scores(session: Session, run_id: str, *, mode: str = "eval", eval_id: str = "") -> Scores:
    """The scored rollouts of a mode's latest step."""
    scope = (RolloutRow.run_id == run_id, RolloutRow.mode == mode, RolloutRow.eval_id == eval_id)
    step = session.scalar(select(func.max(RolloutRow.step)).where(*scope))
    query = select(RolloutRow.example_id, RolloutRow.reward, RolloutRow.components).where(
        *scope, RolloutRow.step == step, RolloutRow.reward.is_not(None)
    )
    found: Scores = defaultdict(list)
    for example_id, reward, components in session.execute(query):
        assert reward is not None
        found[example_id].append({**components, "": reward})
    return dict(found)


def compare(ours: Scores, other: Scores) -> list[Compared]:
    """The whole reward first, then the components that every rollout has; nothing when no example is shared."""
    shared = sorted(ours.keys() & other.keys())
    every = [sample for side in (ours, other) for key in shared for sample in side[key]]
    if not every:
        return []
    names = sorted(set.intersection(*(set(sample) for sample in every)))  # "" comes first
    return [_component(name, [(_mean(ours[key], name), _mean(other[key], name)) for key in shared]) for name in names]


def _component(name: str, pairs: list[tuple[float, float]]) -> Compared:
    delta = estimate_difference(pairs)
    assert delta is not None
    return Compared(name or WHOLE, fmean(one for one, _ in pairs), fmean(other for _, other in pairs), delta)


def _mean(samples: list[dict[str, float]], name: str) -> float:
    return fmean(sample[name] for sample in samples)
