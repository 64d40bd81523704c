"""What a step was like, in numbers with fixed names."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from benchmax import metrics
from benchmax.rollouts.record import Rollout

SOLVED = 1.0 - 1e-6
"""A reward from here on counts as solved."""


def rollout_metrics(groups: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """Rewards, lengths and failures of groups of siblings. Unscored samples are counted, never taken as 0."""
    rollouts = [rollout for group in groups for rollout in group]
    if not rollouts:
        return {}
    played = [rollout for rollout in rollouts if rollout.turns] or rollouts  # a prompt that did not fit has no length
    values = {
        "rollouts": float(len(rollouts)),
        "unscored": _share(rollouts, lambda rollout: rollout.reward is None),
        "truncated": _share(rollouts, lambda rollout: rollout.cut_off),
        "failed": _share(rollouts, lambda rollout: rollout.error is not None),
        metrics.TURNS: statistics.fmean(rollout.turns for rollout in played),
        metrics.RESPONSE_TOKENS: statistics.fmean(map(response_tokens, played)),
        metrics.LONGEST_RESPONSE: float(max(map(response_tokens, rollouts))),
    }
    return values | _reward_metrics(groups) | _component_metrics(rollouts)


def response_tokens(rollout: Rollout) -> int:
    """Tokens the model sampled."""
    if rollout.tokens:
        return sum(len(segment.ids) for segment in rollout.tokens if segment.sampled)
    return rollout.usage.completion_tokens


def _reward_metrics(groups: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    scored = [[rollout.reward for rollout in group if rollout.reward is not None] for group in groups]
    scored = [rewards for rewards in scored if rewards]
    flat = [reward for rewards in scored for reward in rewards]
    if not flat:
        return {}
    return {
        metrics.REWARD: statistics.fmean(flat),
        metrics.REWARD_STD: statistics.pstdev(flat),
        metrics.REWARD_MIN: min(flat),
        metrics.REWARD_MAX: max(flat),
        metrics.PASS_AT_K: statistics.fmean(float(max(rewards) >= SOLVED) for rewards in scored),
        metrics.MAX_AT_K: statistics.fmean(max(rewards) for rewards in scored),
        metrics.SOLVE_RATE: statistics.fmean(float(reward >= SOLVED) for reward in flat),
    }


def _component_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    components: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for name, value in rollout.rewards.items():
            components[name].append(value)
    return {f"reward_stats/{name}/reward/mean": statistics.fmean(values) for name, values in components.items()}


def _share(rollouts: Sequence[Rollout], holds: object) -> float:
    assert callable(holds)
    return sum(map(bool, map(holds, rollouts))) / len(rollouts)
