"""Alarms for answers that grow, are cut off, repeat themselves or do not fit the model."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmax import metrics
from benchmax.rollouts.record import Termination
from benchmax.trainer.watch.history import (
    AVERAGED_STEPS,
    AlarmReason,
    Groups,
    History,
    does_not_fit,
    flat,
    ids,
    longest,
    sampled,
)


def length_blow_up(history: History, groups: Groups) -> AlarmReason | None:
    """Longer answers may earn more; not when nothing is gained, or when hardly one comes to its end."""
    lengths, rewards = history.series(metrics.RESPONSE_TOKENS), history.series(metrics.REWARD)
    if min(len(lengths), len(rewards)) < history.config.window:
        return None
    first, now = history.ends(metrics.RESPONSE_TOKENS)
    reward_before, reward_now = history.ends(metrics.REWARD)
    gained = reward_now - reward_before
    cut = statistics.fmean(history.series(metrics.TRUNCATED)[-AVERAGED_STEPS:] or [0.0])
    in_vain = gained < 0.05 * history.reward_span
    if now <= 2 * first or now - first <= 8 or not (in_vain or cut > 0.5):
        return None
    return AlarmReason(
        f"Answers grew from {first:.0f} to {now:.0f} tokens "
        + ("without more reward. " if in_vain else f"and {cut:.0%} are cut off: length may be what is paid. ")
        + "Use algorithm.normalise = 'constant' or a reward that asks for short answers.",
        {"first": first, "now": now, "reward_gain": gained, "truncated": cut},
        longest(groups),
    )


def all_cut_off(history: History, groups: Groups) -> AlarmReason | None:
    shares = history.series(metrics.TRUNCATED)[-AVERAGED_STEPS:]
    if len(shares) < AVERAGED_STEPS or min(shares) < 0.95:
        return None
    return AlarmReason(
        f"{statistics.fmean(shares):.0%} of the answers of the last {AVERAGED_STEPS} steps were cut off at "
        f"{_cut_at(groups)}. Raise it if they need the room; if not, the model does not end its turn: lower optim.lr "
        "if it once did, or show it how in a warm start.",
        {"truncated": shares[-1]},
        longest(groups),
    )


def _cut_at(groups: Groups) -> str:
    """The settings that cut these answers."""
    ends = {rollout.termination for rollout in flat(groups) if rollout.cut_off}
    if Termination.TOKEN_BUDGET not in ends:
        return "rollouts.max_new_tokens"
    return "rollouts.max_tokens" if len(ends) == 1 else "rollouts.max_new_tokens or rollouts.max_tokens"


def repetition(history: History, groups: Groups) -> AlarmReason | None:
    rollouts = flat(groups)
    looping = [rollout for rollout in rollouts if is_repetitive(sampled(rollout))]
    if not rollouts or len(looping) <= 0.3 * len(rollouts):
        return None
    return AlarmReason(
        f"{len(looping)} of {len(rollouts)} answers repeat themselves. Check that the model can end its turn, "
        "lower rollouts.max_new_tokens, or stop paying for repeated text.",
        {"share": len(looping) / len(rollouts)},
        ids(looping),
    )


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Whether most runs of four tokens in a longer text occur more than once."""
    count = len(tokens) - 3
    return count >= 16 and len({tuple(tokens[i : i + 4]) for i in range(count)}) < 0.5 * count


def too_long(history: History, groups: Groups) -> AlarmReason | None:
    rollouts = flat(groups)
    over = [rollout for rollout in rollouts if does_not_fit(rollout)]
    if not rollouts or len(over) <= len(rollouts) / 4:
        return None
    share = len(over) / len(rollouts)
    return AlarmReason(
        f"{share:.0%} of the rollouts did not fit the model's context: a prompt that does not is left out, a "
        "conversation that grows out of it is cut off. Shorten the prompts or what tools answer, or take a model "
        "with a longer context.",
        {"share": share},
        ids(over),
    )
