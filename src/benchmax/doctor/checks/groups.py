"""Does compute_group_reward keep its promise: one dict of new components per sibling?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import Finding, error
from benchmax.doctor.probe_player import Shot
from benchmax.doctor.registry import check, grouped
from benchmax.errors import DeadlineExceeded
from benchmax.rollouts.scoring import ONE_EACH, OWN_NAMES

_FIX = "Return a list with one dict per rollout, in the order of rollout_ids."


@check("group-reward-raises", "compute_group_reward does not raise", grouped)
def group_reward_raises(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.hook("compute_group_reward")
    failed = [call for call in calls if call.error and not isinstance(call.error, DeadlineExceeded)]
    if failed:
        yield error(
            "compute_group_reward raised.",
            f"in {len(failed)} of {len(calls)} groups: {failed[0].said}",
            "Let it cope with any answers, also empty and equal ones, and with any number of siblings.",
        )


@check("group-reward-wrong-length", "compute_group_reward gives one dict per sibling", grouped)
def group_reward_wrong_length(evidence: Evidence) -> Iterator[Finding]:
    refused = _refused(evidence, ONE_EACH)
    if refused:
        yield error("compute_group_reward gives the wrong number of results.", refused[0], _FIX)
        return
    for call in evidence.hook("compute_group_reward"):
        if not call.error and not all(isinstance(each, Mapping) for each in call.value or ()):
            yield error("compute_group_reward gives something else than dicts.", _kinds(call.value), _FIX)
            return


@check("group-reward-duplicate-key", "group components have names of their own", grouped)
def group_reward_duplicate_key(evidence: Evidence) -> Iterator[Finding]:
    refused = _refused(evidence, OWN_NAMES)
    if refused:
        yield error(
            "compute_group_reward repeats a component of compute_reward.",
            refused[0],
            "Give group components other names, or return {} from compute_reward.",
        )


def _kinds(values: Any) -> str:
    return "a list of " + ", ".join(sorted({type(each).__name__ for each in values}))


def _refused(evidence: Evidence, advice: str) -> list[str]:
    """Reasons for which the results of a group were refused."""
    return [reason for shot in evidence.shots if (reason := _group_reason(shot)) and advice in reason]


def _group_reason(shot: Shot) -> str:
    failure = shot.rollout.error
    return (
        failure.message if failure and failure.where == "compute_group_reward" and failure.type == "RewardError" else ""
    )
