"""What alarms see: the metrics of every step so far, and what follows from them about the range of rewards."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmax import metrics
from benchmax.evaluation.report import cut_middle
from benchmax.rollouts.record import Rollout, Termination
from benchmax.trainer.config import WatchConfig

Groups = Sequence[Sequence[Rollout]]
Values = Mapping[str, float]

AVERAGED_STEPS = 3
"""Steps averaged at either end of a window, against noise."""
ROOM_DEVIATIONS = 1 / 3
"""A mean reward this close to the best one seen, in standard deviations of a step's rewards, counts as the best. Where
answers earn 0 or 1 that is five of six."""
ROLLOUTS_NAMED = 4
"""Rollouts that an alert names."""
REASON_CHARS = 600
"""The longest quotation of an environment's error."""


class AlarmReason(NamedTuple):
    """What an alarm found: what is wrong and what to do, the numbers behind it, and ids of rollouts that show it."""

    message: str
    evidence: dict[str, Any]
    rollouts: Sequence[str] = ()


class History:
    """The metrics of a run's training steps, oldest first."""

    def __init__(self, config: WatchConfig) -> None:
        self.config = config
        self.steps: list[dict[str, float]] = []
        self.component_maxima: dict[str, float] = {}
        """Highest single value seen of each reward component."""
        self.vocabulary = 0
        """Tokens the model chooses from, which bounds its entropy; 0 when not known."""

    def series(self, name: str) -> list[float]:
        """A metric over all steps that have it."""
        return [values[name] for values in self.steps if name in values]

    def ends(self, name: str) -> tuple[float, float]:
        """The mean of a metric over its first and over its last few steps."""
        values = self.series(name)
        return statistics.fmean(values[:AVERAGED_STEPS]), statistics.fmean(values[-AVERAGED_STEPS:])

    def best_and_latest_reward(self) -> tuple[float, float] | None:
        """The highest and the latest moving average of the mean reward; None while there are too few steps."""
        rewards = self.series(metrics.REWARD)
        means = [statistics.fmean(rewards[at - AVERAGED_STEPS : at]) for at in range(AVERAGED_STEPS, len(rewards) + 1)]
        return (max(means), means[-1]) if len(means) > 1 else None

    @property
    def lowest(self) -> float:
        """The lowest reward of any answer so far, at most 0."""
        return min([0.0, *self.series(metrics.REWARD_MIN)])

    @property
    def highest(self) -> float:
        """The highest reward of any answer so far."""
        return max(self.series(metrics.REWARD_MAX), default=-math.inf)

    @property
    def reward_range(self) -> tuple[float, float]:
        """The lowest and the highest reward of any answer so far: rewards may lie anywhere."""
        low, high = reward_range(self.steps)
        return 0.0 if low is None else low, 1.0 if high is None else high

    @property
    def reward_span(self) -> float:
        low, high = self.reward_range
        return high - low

    @property
    def spread(self) -> float:
        """The largest standard deviation of the rewards of one step."""
        return max(self.series(metrics.REWARD_STD), default=0.0)

    def has_room(self, reward: float) -> bool:
        """Whether answers earned clearly more than this mean. What was seen is the only scale there is."""
        return self.highest - reward > ROOM_DEVIATIONS * self.spread > 0


def reward_range(steps: Iterable[Values]) -> tuple[float | None, float | None]:
    """The lowest and the highest reward of these steps."""
    lows = [values[metrics.REWARD_MIN] for values in steps if metrics.REWARD_MIN in values]
    highs = [values[metrics.REWARD_MAX] for values in steps if metrics.REWARD_MAX in values]
    return min(lows, default=None), max(highs, default=None)


def flat(groups: Groups) -> list[Rollout]:
    return [rollout for group in groups for rollout in group]


def ids(rollouts: Iterable[Rollout]) -> list[str]:
    """The ids of the first few."""
    return [rollout.id for rollout, _ in zip(rollouts, range(ROLLOUTS_NAMED), strict=False)]


def lowest(groups: Groups) -> list[str]:
    """The rollouts that earned least."""
    scored = [rollout for rollout in flat(groups) if rollout.reward is not None]
    return ids(sorted(scored, key=lambda rollout: rollout.reward or 0.0))


def longest(groups: Groups) -> list[str]:
    return ids(sorted(flat(groups), key=lambda rollout: -len(sampled(rollout))))


def sampled(rollout: Rollout) -> list[int]:
    """The tokens the model sampled."""
    return [token for segment in rollout.tokens if segment.sampled for token in segment.ids]


def does_not_fit(rollout: Rollout) -> bool:
    """Whether it did not fit the model's context."""
    return rollout.termination is Termination.CONTEXT_EXCEEDED


def most_common_error(groups: Groups) -> str:
    """The most common reason why rollouts have no reward, shortened: it may be an environment's own text."""
    reasons = Counter(_why_unscored(rollout) for rollout in flat(groups) if rollout.reward is None)
    reason = reasons.most_common(1)[0][0].rstrip(".") if reasons else "a component was unscored"
    return cut_middle(reason, REASON_CHARS)


def _why_unscored(rollout: Rollout) -> str:
    if error := rollout.error:
        return error.type if error.message == error.type else f"{error.type}: {error.message}"
    return next(iter(rollout.unscored.values()), "a component was unscored")
