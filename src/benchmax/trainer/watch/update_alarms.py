"""Alarms for updates: entropy that vanishes or explodes, drift between sampler and trainer, numbers that are not
finite."""

from __future__ import annotations

import math
import statistics

from benchmax import metrics
from benchmax.trainer.watch.history import AVERAGED_STEPS, AlarmReason, Groups, History, longest, lowest


def entropy_collapse(history: History, groups: Groups) -> AlarmReason | None:
    rewards = history.series(metrics.REWARD)[-AVERAGED_STEPS:]
    if len(history.series(metrics.ENTROPY)) < history.config.window or not rewards:
        return None
    first, now = history.ends(metrics.ENTROPY)
    reward, best = statistics.fmean(rewards), history.highest
    if now >= 0.05 * first or not history.has_room(reward):
        return None
    return AlarmReason(
        f"The model is nearly certain of every token (entropy {first:.3f} → {now:.3f}) but earns {reward:.3g} on "
        f"average, where the best answer earned {best:.3g}: it can no longer explore. Lower optim.lr, raise "
        "algorithm.clip_high or the temperature.",
        {"first": first, "now": now, "reward": reward, "best": best},
        lowest(groups),
    )


def entropy_blow_up(history: History, groups: Groups) -> AlarmReason | None:
    """The model comes close to drawing tokens evenly; one that began like that has not lost anything."""
    if len(history.series(metrics.ENTROPY)) < 2 * AVERAGED_STEPS or history.vocabulary < 2:
        return None
    most = math.log(history.vocabulary)
    first, now = history.ends(metrics.ENTROPY)
    if now <= 0.5 * most or now - first <= 0.25 * most:
        return None
    return AlarmReason(
        f"The model chooses its tokens almost at random (entropy {first:.2f} → {now:.2f}; evenly over its "
        f"vocabulary is {most:.2f}): it is being destroyed. Go back to the best checkpoint and lower optim.lr, "
        "or add algorithm.kl.",
        {"first": first, "now": now, "most": most},
        longest(groups),
    )


def drift(history: History, groups: Groups) -> AlarmReason | None:
    gap = history.steps[-1].get(metrics.DRIFT, 0.0)
    if gap <= history.config.drift:
        return None
    return AlarmReason(
        f"Trainer and sampler disagree on log-probs by {gap:.3f} on average. Keep algorithm.importance_cap on, use "
        "model.sampler_dtype = 'float32', and check rollouts.top_p.",
        {"drift": gap},
    )


def not_finite(history: History, groups: Groups) -> AlarmReason | None:
    skipped = history.steps[-1].get(metrics.SKIPPED_UPDATES, 0.0)
    if not skipped:
        return None
    return AlarmReason(
        "The loss or its gradient was not a finite number; that update was left out and the weights are unharmed. "
        "Lower optim.lr or optim.grad_clip if it comes back.",
        {metrics.SKIPPED_UPDATES: skipped},
    )
