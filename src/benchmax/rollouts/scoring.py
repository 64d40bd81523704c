"""From a finished rollout to its reward: components, group components and the total."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from time import perf_counter
from typing import Any

from benchmax import limits
from benchmax.envs.legacy import group_reward_arguments, reward_arguments
from benchmax.envs.logging import group_context
from benchmax.envs.normalise_rewards import WHOLE, finite, normalise_rewards
from benchmax.envs.types import Transcript, Unscored
from benchmax.errors import RewardError, describe_failure
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Failure, Rollout, Termination
from benchmax.rollouts.settings import RolloutSettings

ONE_EACH = "Return a list with one dict per rollout."
OWN_NAMES = "Name group components differently."
"""What to do about group rewards that cannot be used; the doctor recognises the failures by it."""


def copy_transcript(messages: Transcript) -> Transcript:
    """A copy that a reward may change without touching the record or a sibling."""
    return Transcript(map(deep_copy, messages), messages.completion_start)


def deep_copy(value: Any) -> Any:
    """A deep copy, as `deepcopy` makes one, but fast for JSON values, which are mostly texts."""
    if type(value) is dict:
        own = value.copy()
        for key, item in own.items():
            if type(item) not in _SHARED:
                own[key] = deep_copy(item)
        return own
    if type(value) is list:
        return [deep_copy(item) for item in value]
    return value if type(value) in _SHARED else deepcopy(value)


_SHARED = frozenset({str, int, float, bool, type(None)})
"""Types whose values never change, so that a copy may hold the same ones."""


async def score(host: EnvHost, rollout: Rollout, settings: RolloutSettings) -> None:
    """Run compute_reward. A failure leaves the sample unscored, with the reason."""
    began = perf_counter()
    seconds = settings.reward_seconds
    try:
        extra = deep_copy(rollout.init_rollout_args) or {}
        arguments = reward_arguments(
            host.env.compute_reward, copy_transcript(rollout.messages), deep_copy(rollout.task), extra
        )
        raw = await host.outcome(host.start("compute_reward", (rollout.id,), arguments, seconds=seconds), seconds)
        _record(rollout, raw)
        if raw == {} and not host.overrides("compute_group_reward"):
            raise RewardError('compute_reward returned no components. Return at least {"name": number}.')
    except Exception as error:
        unscored(rollout, WHOLE, error, Termination.REWARD_ERROR, "compute_reward")
    rollout.seconds["reward"] = perf_counter() - began


async def score_group(host: EnvHost, rollouts: Sequence[Rollout], settings: RolloutSettings) -> None:
    """Run compute_group_reward over the siblings that reached an end worth scoring."""
    members = [rollout for rollout in rollouts if rollout.scorable]
    if not members:
        return
    ids = [rollout.id for rollout in members]
    try:
        arguments = group_reward_arguments(
            host.env.compute_group_reward,
            [copy_transcript(rollout.messages) for rollout in members],
            [deep_copy(rollout.task) for rollout in members],
        )
        with group_context(ids):
            scoring = host.start("compute_group_reward", (ids,), arguments)
            results = await host.outcome(scoring, settings.reward_seconds)
        _check_group(results, members)
        for rollout, raw in zip(members, results, strict=True):
            _record(rollout, raw)
        if not any(rollout.rewards or rollout.unscored for rollout in members):
            raise RewardError('compute_reward and compute_group_reward returned no component. Return {"name": number}.')
    except Exception as error:
        for rollout in members:
            unscored(rollout, "group_reward", error, Termination.GROUP_REWARD_ERROR, "compute_group_reward")


def _check_group(results: Any, members: Sequence[Rollout]) -> None:
    if not isinstance(results, Sequence) or isinstance(results, str) or len(results) != len(members):
        got = f"{len(results)} results" if isinstance(results, list | tuple) else type(results).__name__
        raise RewardError(f"compute_group_reward returned {got} for {len(members)} rollouts. {ONE_EACH}")
    for rollout, raw in zip(members, results, strict=True):
        doubled = set(raw) & (set(rollout.rewards) | set(rollout.unscored)) if isinstance(raw, Mapping) else set()
        if doubled:
            raise RewardError(
                f"compute_group_reward and compute_reward both return {', '.join(sorted(map(str, doubled)))}. "
                f"{OWN_NAMES}"
            )


def _record(rollout: Rollout, raw: Any) -> None:
    scored, missing = normalise_rewards(raw)
    rollout.rewards.update(scored)
    rollout.unscored.update(missing)


def unscored(rollout: Rollout, name: str, error: BaseException, reason: Termination, where: str) -> None:
    """Mark a component unscored; the termination changes only for a rollout that finished."""
    rollout.unscored[name] = describe_failure(error)
    if rollout.error is None:
        rollout.error = Failure.of(error, where)
    if rollout.termination is Termination.FINISHED:
        rollout.termination = reason


async def settle_group(host: EnvHost, rollouts: Sequence[Rollout], settings: RolloutSettings) -> None:
    """Score siblings together, once each has been scored alone, and compute their totals."""
    if host.overrides("compute_group_reward"):
        await score_group(host, rollouts, settings)
    finish_group(host, rollouts, settings)


def finish_group(host: EnvHost, rollouts: Sequence[Rollout], settings: RolloutSettings) -> None:
    """Compute the totals of siblings, each with the components of all."""
    _fill_missing_components(rollouts)
    for rollout in rollouts:
        finish(host, rollout, settings)


def _fill_missing_components(rollouts: Sequence[Rollout]) -> None:
    """Set components that only siblings have to 0, so that means count every rollout."""
    names = {name for rollout in rollouts for name in rollout.rewards}
    for rollout in rollouts:
        if rollout.scorable and rollout.rewards and not rollout.unscored:
            rollout.rewards |= dict.fromkeys(names - rollout.rewards.keys(), 0.0)


def finish(host: EnvHost, rollout: Rollout, settings: RolloutSettings) -> None:
    """Compute the total and whether the rollout is ok."""
    rollout.reward = None
    if settings.score and rollout.rewards and not rollout.unscored and rollout.scorable:
        weights = settings.weights or host.env.reward_weights
        host.note_weights(weights, rollout.rewards)
        total = _total(rollout.rewards, weights)
        if abs(total) <= limits.REWARD_SIZE:
            rollout.reward = total
        else:
            problem = weights_problem(weights)
            reason = problem or (
                f"The total of the reward is {total:g}, not a finite number within {limits.REWARD_SIZE:g}; "
                "keep components small."
            )
            where = "reward_weights" if problem else "compute_reward"
            unscored(rollout, WHOLE, RewardError(reason), Termination.REWARD_ERROR, where)
    scored = rollout.reward is not None or not settings.score
    rollout.ok = rollout.scorable and rollout.error is None and scored


def _total(rewards: Mapping[str, float], weights: Any) -> float:
    """The weighted sum; NaN when the weights cannot be used."""
    try:
        return float(sum(value * weights.get(name, 1.0) for name, value in rewards.items()))
    except Exception:
        return math.nan


def weights_problem(weights: Any) -> str | None:
    """Why these cannot be reward weights, or None."""
    if not isinstance(weights, Mapping):
        return f'reward_weights is a {type(weights).__name__}; make it a dict such as {{"correct": 1.0}}.'
    for name, weight in weights.items():
        outcome = finite(str(name), weight)
        if isinstance(outcome, Unscored):
            return f"reward_weights[{name!r}] is {_shown(weight)}; make it a finite number."
    return None


def _shown(value: Any) -> str:
    """A user's value as a short text; its type when it has none."""
    return repr(value)[:80] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
