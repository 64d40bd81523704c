"""What a sample is worth compared with its siblings.

A group is all samples of one prompt. Its baseline is the mean reward of the *scored* siblings: an unscored sample is
not a 0, it leaves the group. A group whose rewards are all equal has no signal and is discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmax.metrics import pays_more
from benchmax.rollouts.record import Rollout

UNSCORED = "unscored"
TOO_FEW = "too few scored"
NO_SIGNAL = "no signal"
NO_TOKENS = "no tokens"
CUT_OFF = "cut off"

STD_FLOOR = 1e-4
"""Added to the standard deviation, so that tiny differences are not inflated."""
PENALTY_BEGINS = 0.8
"""Share of the token limit from which on an answer begins to lose reward."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """How an answer counts in the update that was cut off at its token limit, or came close to it.

    Otherwise a model earns the full reward for an answer that never ends, and never learns to end one.
    """

    how: Literal["penalise", "mask", "keep"] = "keep"
    penalty: float = 0.5
    """Share of its reward that a cut-off answer loses."""
    limit: int = 0
    """Most tokens of a turn."""
    floor: float = 0.0
    """The lowest reward there is; only what is above it can be lost."""

    def worth(self, rollout: Rollout) -> float:
        """The reward as the update sees it."""
        reward = rollout.reward
        assert reward is not None
        if self.how != "penalise" or reward <= self.floor:
            return reward
        return self.floor + (reward - self.floor) * (1 - self.penalty * self._loss(rollout))

    def _loss(self, rollout: Rollout) -> float:
        """From 0 for an answer that stayed clear of the limit to 1 for one that was cut."""
        if rollout.cut_off:
            return 1.0
        last = next((segment for segment in reversed(rollout.tokens) if segment.sampled), None)
        length = len(last.ids) if last else 0
        begins = PENALTY_BEGINS * self.limit
        return min(1.0, max(0.0, (length - begins) / (self.limit - begins))) if self.limit else 0.0


@dataclass(frozen=True, slots=True)
class AdvantageRule:
    """How rewards become advantages."""

    scale: Literal["std", "mean"] = "std"
    leave_one_out: bool = False
    min_scored: float = 0.75
    cut_off: CutOff = CutOff()


def assign_advantages(group: Sequence[Rollout], rule: AdvantageRule = AdvantageRule()) -> bool:
    """Set `advantage` and `discarded` of every rollout of a group; returns whether the group has signal."""
    for rollout in group:
        rollout.advantage, rollout.discarded = 0.0, _flaw(rollout, rule)
    scored = [rollout for rollout in group if rollout.discarded is None]
    judged = [rollout for rollout in group if rollout.discarded in (None, CUT_OFF)]
    if len(judged) < max(2, rule.min_scored * len(group)) or len(scored) < 2:
        return _discard(scored, TOO_FEW)
    rewards = [rule.cut_off.worth(rollout) for rollout in scored]
    if not pays_more(max(rewards), min(rewards)):
        return _discard(scored, NO_SIGNAL)
    for rollout, advantage in zip(scored, advantages(rewards, rule), strict=True):
        rollout.advantage = advantage
    return True


def advantages(rewards: Sequence[float], rule: AdvantageRule = AdvantageRule()) -> list[float]:
    """The advantage of each reward among its siblings' (at least two)."""
    count = len(rewards)
    mean = sum(rewards) / count
    centred = [reward - mean for reward in rewards]
    if rule.leave_one_out:
        centred = [difference * count / (count - 1) for difference in centred]
    if rule.scale == "mean":
        return centred
    deviation = (sum((reward - mean) ** 2 for reward in rewards) / (count - 1)) ** 0.5
    return [difference / (deviation + STD_FLOOR) for difference in centred]


def _flaw(rollout: Rollout, rule: AdvantageRule) -> str | None:
    if not rollout.ok or rollout.reward is None:
        return UNSCORED
    if not any(segment.sampled and segment.ids for segment in rollout.tokens):
        return NO_TOKENS
    return CUT_OFF if rule.cut_off.how == "mask" and rollout.cut_off else None


def _discard(rollouts: Sequence[Rollout], reason: str) -> bool:
    for rollout in rollouts:
        rollout.discarded = reason
    return False
