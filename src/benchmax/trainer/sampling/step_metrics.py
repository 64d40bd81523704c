"""The metrics of one step's rollouts: rewards, lengths, failures. Their names are those of `benchmax.metrics`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from benchmax import metrics
from benchmax.rollouts.record import Rollout


def rollout_metrics(groups: Sequence[Sequence[Rollout]], primary: metrics.Primary = None) -> dict[str, float]:
    """Metrics of groups of siblings. Unscored samples are counted, never taken as 0.

    `primary` is the component that says whether a task is solved. Where each part of a composed environment has its
    own, the parts are measured apart, too.
    """
    values = _metrics(groups, primary)
    for part in primary if isinstance(primary, Mapping) else ():
        own = _metrics([group for group in groups if group and group[0].env == part], primary)
        values |= {metrics.of_part(part, key): own[key] for key in metrics.PART_METRICS if key in own}
    return values


def _metrics(groups: Sequence[Sequence[Rollout]], primary: metrics.Primary) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group]
    if not rollouts:
        return {}
    played = [rollout for rollout in rollouts if rollout.turns] or rollouts  # a prompt that did not fit has no length
    values = {
        metrics.ROLLOUTS: float(len(rollouts)),
        metrics.UNSCORED: fmean(rollout.reward is None for rollout in rollouts),
        metrics.TRUNCATED: fmean(rollout.cut_off for rollout in rollouts),
        metrics.FAILED: fmean(rollout.error is not None for rollout in rollouts),
        metrics.TURNS: fmean(rollout.turns for rollout in played),
        metrics.RESPONSE_TOKENS: fmean(map(response_tokens, played)),
        metrics.LONGEST_RESPONSE: float(max(map(response_tokens, rollouts))),
    }
    components: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for name, value in rollout.rewards.items():
            components[metrics.component(name)].append(value)
    means = {name: fmean(paid) for name, paid in components.items()}
    return values | _reward_metrics(groups, primary) | means


def response_tokens(rollout: Rollout) -> int:
    """Tokens the model sampled."""
    if rollout.tokens:
        return sum(len(segment.ids) for segment in rollout.tokens if segment.sampled)
    return rollout.usage.completion_tokens


def _reward_metrics(groups: Sequence[Sequence[Rollout]], primary: metrics.Primary) -> dict[str, float]:
    scored = [kept for group in groups if (kept := [rollout for rollout in group if rollout.reward is not None])]
    rewards = [[rollout.reward or 0.0 for rollout in group] for group in scored]
    solved = [[metrics.solved(rollout, primary) for rollout in group] for group in scored]
    flat = [reward for group in rewards for reward in group]
    if not flat:
        return {}
    return {
        metrics.REWARD: fmean(flat),
        metrics.REWARD_STD: pstdev(flat),
        metrics.REWARD_MIN: min(flat),
        metrics.REWARD_MAX: max(flat),
        metrics.PASS_AT_K: fmean(map(any, solved)),
        metrics.MAX_AT_K: fmean(map(max, rewards)),
        metrics.SOLVE_RATE: fmean(each for group in solved for each in group),
    }
