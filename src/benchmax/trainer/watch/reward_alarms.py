"""Alarms for rewards that fall, stand still or are missing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from benchmax import metrics
from benchmax.trainer.watch.history import (
    AVERAGED_STEPS,
    AlarmReason,
    Groups,
    History,
    does_not_fit,
    flat,
    ids,
    lowest,
    most_common_error,
)

STANDARD_ERRORS = 2.5
"""Standard errors by which a mean must have fallen, to be more than chance."""
UNMOVED_SHARE = 0.02
"""A smaller part of the range of rewards seen is no change of the mean."""
MOST_UNSCORED = 0.25
"""A larger share of rollouts without a reward raises an alert."""
HIGH_LR = 1e-2
"""Beyond this AdamW's steps destroy a language model sooner than they teach it."""


def reward_collapse(history: History, groups: Groups) -> AlarmReason | None:
    found = history.best_and_latest_reward()
    if found is None:
        return None
    best, now = found
    sampled_groups = sum(values.get(metrics.GROUPS, 0.0) for values in history.steps[-AVERAGED_STEPS:])
    # Prompts differ in difficulty, so two means of a few steps differ by chance too.
    chance = STANDARD_ERRORS * history.spread * math.sqrt(2 / sampled_groups) if sampled_groups else 0.0
    if not _collapsed(history, best, now) or best - now <= chance:
        return None
    return _fell("The mean reward", best, now, groups)


def held_out_collapse(history: History, best: float | None, now: float | None, groups: Groups) -> AlarmReason | None:
    if best is None or now is None or not _collapsed(history, best, now):
        return None
    rewards = [rollout.reward for rollout in flat(groups) if rollout.reward is not None]
    chance = STANDARD_ERRORS * _spread_of(history, rewards, best) * math.sqrt(2 / len(rewards)) if rewards else 0.0
    return _fell("The mean held-out reward", best, now, groups) if best - now > chance else None


def _collapsed(history: History, best: float, now: float) -> bool:
    """Whether half of what could be lost is lost, and that is not next to nothing."""
    return best - now > max(0.1 * history.reward_span, 0.5 * (best - history.reward_range[0]))


def _spread_of(history: History, rewards: Sequence[float], best: float) -> float:
    """How far answers differ in reward: the present ones, or as far as a mean like the best one allows. Where all earn
    nothing now, their own spread says nothing about the past."""
    low, high = history.reward_range
    return max(statistics.pstdev(rewards), math.sqrt(max(0.0, (best - low) * (high - best))))


def _fell(what: str, best: float, now: float, groups: Groups) -> AlarmReason:
    return AlarmReason(
        f"{what} fell from {best:.2f} to {now:.2f}. Go back to the best checkpoint and lower optim.lr, or add "
        "algorithm.kl.",
        {"best": best, "now": now},
        lowest(groups),
    )


def all_equal(history: History, groups: Groups) -> AlarmReason | None:
    """Every sample of every group earns the same, and less than was reached: nothing leads back up."""
    recent, found = history.steps[-AVERAGED_STEPS:], history.best_and_latest_reward()
    if found is None or any(values.get(metrics.GROUPS_USED) for values in recent):
        return None
    best, now = found
    if not best - now > 0.1 * history.reward_span > 0:
        return None
    return AlarmReason(
        f"For {AVERAGED_STEPS} steps all samples of each prompt earned the same, {now:.2f} on average where {best:.2f} "
        "was reached. Go back to the best checkpoint and lower optim.lr.",
        {"best": best, "now": now},
        lowest(groups),
    )


def not_moving(history: History, groups: Groups) -> AlarmReason | None:
    window, rewards = history.config.window, history.series(metrics.REWARD)
    latest = history.steps[-1]
    if len(rewards) < 2 * window or not latest.get(metrics.GROUPS_USED):
        return None
    before, now = statistics.fmean(rewards[-2 * window : -window]), statistics.fmean(rewards[-window:])
    seen = history.highest - min(history.series(metrics.REWARD_MIN), default=math.inf)
    if abs(now - before) >= UNMOVED_SHARE * seen or not history.has_room(now):
        return None
    lr, best = latest.get(metrics.LEARNING_RATE, 0.0), history.highest
    return AlarmReason(
        f"The reward has not moved for {2 * window} steps (at {now:.3g} on average; the best answer earned "
        f"{best:.3g}). {_other_lr(lr)}",
        {"before": before, "now": now, "best": best, "lr": lr},
    )


def _other_lr(lr: float) -> str:
    if 3 * lr <= HIGH_LR:
        return f"Try optim.lr {3 * lr:.1e} instead of {lr:.1e}, or a larger rollouts.group_size."
    return (
        f"optim.lr is high already ({lr:.1e}), and a higher one would destroy the model: try a lower one, a larger "
        "rollouts.group_size, or a reward that gives partial credit."
    )


def component_saturated(history: History, groups: Groups) -> AlarmReason | None:
    """One easy component is earned in full while another never is: the model has found the cheap half of the reward."""
    window, tops = history.config.window, history.component_maxima
    recent = {name: history.series(metrics.component(name))[-window:] for name in _components(history)}
    full = {name: values for name, values in recent.items() if len(values) >= window}
    paid = [name for name, values in full.items() if tops.get(name, 0.0) > 0 and min(values) >= 0.9 * tops[name]]
    scale = max((tops[name] for name in paid), default=0.0)
    unpaid = [name for name in full if name not in paid and _stuck(full[name], max(scale, tops.get(name, 0.0)))]
    if not paid or not unpaid:
        return None
    by_unpaid = sorted(flat(groups), key=lambda rollout: sum(rollout.rewards.get(name, 0) for name in unpaid))
    return AlarmReason(
        f"{', '.join(paid)} is paid in full for {window} steps while {', '.join(unpaid)} does not move. "
        "The model may have found a shortcut: read the examples, and pay for the first only with the second.",
        {"saturated": {name: full[name][-1] for name in paid}, "flat": {name: full[name][-1] for name in unpaid}},
        ids(by_unpaid),
    )


def _components(history: History) -> list[str]:
    """The reward components of the latest step."""
    before, after = metrics.component("\0").split("\0")
    return [key[len(before) : -len(after)] for key in history.steps[-1] if key.startswith(before)]


def _stuck(values: Sequence[float], scale: float) -> bool:
    """Whether they stay close to nothing, on a scale of rewards, and do not rise."""
    half = len(values) // 2
    rise = statistics.fmean(values[half:]) - statistics.fmean(values[:half])
    return max(values) <= 0.1 * scale and rise < 0.02 * scale


def unscored(history: History, groups: Groups) -> AlarmReason | None:
    share = history.steps[-1].get(metrics.UNSCORED, 0.0)
    failed = [rollout for rollout in flat(groups) if rollout.reward is None]
    if share <= MOST_UNSCORED or all(map(does_not_fit, failed)):
        return None
    return AlarmReason(
        f"{share:.0%} of the rollouts got no reward and were left out. The most common reason: "
        f"{most_common_error(groups)}. Fix the environment or its judge.",
        {"share": share},
        ids(failed),
    )


def held_out_unscored(history: History, best: float | None, now: float | None, groups: Groups) -> AlarmReason | None:
    rollouts = flat(groups)
    failed = [rollout for rollout in rollouts if rollout.reward is None]
    if len(failed) <= MOST_UNSCORED * len(rollouts):
        return None
    share = len(failed) / len(rollouts)
    return AlarmReason(
        f"{share:.0%} of the held-out rollouts got no reward, and the held-out reward leaves them out; with fewer "
        "than algorithm.min_scored of them scored, an evaluation does not count. The most common reason: "
        f"{most_common_error(groups)}. Fix the environment, its judge or these rows.",
        {"share": share},
        ids(failed),
    )
