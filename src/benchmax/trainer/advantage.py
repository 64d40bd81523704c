"""What a sample is worth compared with its siblings.

A group is all samples of one prompt. Its baseline is the mean reward of the *scored* siblings: an unscored sample is
not a 0, it leaves the group. A group whose rewards are all equal says nothing and is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmax.rollouts.record import Rollout

UNSCORED = "unscored"
TOO_FEW = "too few scored"
NO_SIGNAL = "no signal"
NO_TOKENS = "no tokens"

EQUAL = 1e-9
"""Rewards closer than this are equal."""
STD_FLOOR = 1e-4
"""Added to the standard deviation, so that tiny differences are not blown up."""


@dataclass(frozen=True, slots=True)
class AdvantageRule:
    """How rewards become advantages."""

    scale: Literal["std", "mean"] = "std"
    leave_one_out: bool = False
    min_scored: float = 0.75


def assign_advantages(group: Sequence[Rollout], rule: AdvantageRule = AdvantageRule()) -> bool:
    """Stamp `advantage` and `discarded` on every rollout of a group; True when the group has signal."""
    scored = [rollout for rollout in group if _usable(rollout)]
    for rollout in group:
        rollout.advantage, rollout.discarded = 0.0, _flaw(rollout)
    if len(scored) < max(2, rule.min_scored * len(group)):
        return _discard(scored, TOO_FEW)
    rewards = [_reward(rollout) for rollout in scored]
    if max(rewards) - min(rewards) < EQUAL:
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


def _usable(rollout: Rollout) -> bool:
    return _flaw(rollout) is None


def _flaw(rollout: Rollout) -> str | None:
    if not rollout.ok or rollout.reward is None:
        return UNSCORED
    return None if any(segment.sampled and segment.ids for segment in rollout.tokens) else NO_TOKENS


def _reward(rollout: Rollout) -> float:
    assert rollout.reward is not None
    return rollout.reward


def _discard(rollouts: Sequence[Rollout], reason: str) -> bool:
    for rollout in rollouts:
        rollout.discarded = reason
    return False
