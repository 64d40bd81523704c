"""Alarms for runs without signal: steps whose groups of samples teach nothing, and why they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmax import metrics
from benchmax.trainer.learning.advantage import CUT_OFF, NO_SIGNAL, NO_TOKENS, TOO_FEW, UNSCORED
from benchmax.trainer.watch.history import (
    AlarmReason,
    Groups,
    History,
    Values,
    flat,
    ids,
    most_common_error,
    reward_range,
)

FIRST_STEPS = 4
"""Steps without any signal, from the first on, after which an alert says so."""
REASONS = {
    NO_SIGNAL: "the samples of {} got equal rewards",
    UNSCORED: "too few samples of {} got a reward",
    NO_TOKENS: "too few samples of {} have tokens to learn from",
    CUT_OFF: "too many samples of {} were cut off",
    TOO_FEW: "too few samples of {} were drawn",
}
"""Why a group has no signal; the first one that is found among its samples counts."""


def nothing_learned(history: History, groups: Groups) -> AlarmReason | None:
    """Once, early: no group of any step had signal, so no update has happened yet."""
    steps = history.steps
    scored = any(metrics.REWARD in values for values in steps)
    if len(steps) != FIRST_STEPS or not scored or _used(steps):
        return None
    return _without_signal(
        steps, groups, f"Nothing to learn from yet: in all {len(steps)} steps {{}}, so no update has happened. "
    )


def no_signal(history: History, groups: Groups) -> AlarmReason | None:
    recent = history.steps[-history.config.equal_steps :]
    if len(recent) < history.config.equal_steps or _used(recent):
        return None
    return _without_signal(recent, groups, f"For {len(recent)} steps {{}}, so nothing was learned. ")


def count_silent_groups(groups: Groups) -> dict[str, float]:
    """Groups without signal, counted by the reason, as values of a step."""
    found: Counter[str] = Counter()
    for group in groups:
        reasons = {rollout.discarded for rollout in group}
        if None not in reasons:
            found.update([reason for reason in REASONS if reason in reasons][:1])
    return {f"silent/{reason}": float(count) for reason, count in found.items()}


def _used(steps: Sequence[Values]) -> bool:
    return any(values.get(metrics.GROUPS_USED) for values in steps)


def _without_signal(steps: Sequence[Values], groups: Groups, message: str) -> AlarmReason:
    counts = Counter({reason: int(sum(step.get(f"silent/{reason}", 0) for step in steps)) for reason in REASONS})
    reasons, (low, high) = {reason: count for reason, count in counts.most_common() if count}, reward_range(steps)
    evidence: dict[str, Any] = {"steps": len(steps), "groups": reasons, "lowest": low, "highest": high}
    return AlarmReason(message.format(_why(reasons, low, high)) + _advice(reasons, groups), evidence, ids(flat(groups)))


def _why(reasons: dict[str, int], low: float | None, high: float | None) -> str:
    total = sum(reasons.values())
    parts = [
        REASONS[reason].format("each prompt" if count == total else f"{count} of {total} prompts")
        for reason, count in reasons.items()
    ]
    if list(reasons) == [NO_SIGNAL]:
        parts[0] += f" (all {low:g})" if low == high else f" (from {low:g} to {high:g})"
    return ", ".join(parts) or "no group of samples had signal"


def _advice(reasons: dict[str, int], groups: Groups) -> str:
    """Advice that fits both the settings of `benchmax train` and the arguments of a launch."""
    if next(iter(reasons), None) == UNSCORED and any(rollout.reward is None for rollout in flat(groups)):
        return f"The most common reason: {most_common_error(groups)}. Put that right first."
    return (
        "Read the examples. Where answers earn all there is, take harder rows; where not, try more samples per prompt "
        "(group_size), a warm start on examples (supervised), the form shown in the prompt, or a reward that gives "
        "partial credit."
    )
