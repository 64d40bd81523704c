"""Does compute_group_reward return what it must: one dict of new components per sibling?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from benchmax.doctor.checks.hooks import failures
from benchmax.doctor.evidence import LEAST_NOISE, Evidence
from benchmax.doctor.findings import Finding, error, warning
from benchmax.doctor.quoting import quote
from benchmax.doctor.registry import check, grouped
from benchmax.errors import DeadlineExceeded
from benchmax.rollouts.scoring import ONE_EACH, OWN_NAMES

_HOOK = "compute_group_reward"
_FIX = "Return a list with one dict per rollout, in the order of rollout_ids."


@check("group-reward-raises", "compute_group_reward does not raise", grouped)
def group_reward_raises(evidence: Evidence) -> Iterator[Finding]:
    fix = "Let it handle any answers, also empty and equal ones, and any number of siblings."
    yield from failures(evidence, _HOOK, "compute_group_reward raised.", fix, "groups", but=DeadlineExceeded)


@check("group-reward-wrong-length", "compute_group_reward returns one dict per sibling", grouped)
def group_reward_wrong_length(evidence: Evidence) -> Iterator[Finding]:
    if refused := _refused(evidence, ONE_EACH):
        yield error("compute_group_reward returns the wrong number of results.", refused, _FIX)
        return
    for call in evidence.hook(_HOOK):
        if not call.error and not all(isinstance(each, Mapping) for each in call.value or ()):
            kinds = ", ".join(sorted({type(each).__name__ for each in call.value}))
            yield error("compute_group_reward returns something else than dicts.", f"a list of {kinds}", _FIX)
            return


@check("group-reward-duplicate-key", "group components have names of their own", grouped)
def group_reward_duplicate_key(evidence: Evidence) -> Iterator[Finding]:
    if refused := _refused(evidence, OWN_NAMES):
        fix = "Give group components other names, or return {} from compute_reward."
        yield error("compute_group_reward repeats a component of compute_reward.", refused, fix)


@check("group-reward-unequal", "siblings that say the same earn the same", grouped)
def group_reward_unequal(evidence: Evidence) -> Iterator[Finding]:
    totals: dict[str, list[float]] = defaultdict(list)
    for answer in evidence.siblings:
        if answer.total is not None:
            totals[answer.text].append(answer.total)
    for text, earned in totals.items():
        if max(earned) - min(earned) > evidence.noise + LEAST_NOISE:
            yield warning(
                "Siblings that say the same earn differently: the reward depends on their order.",
                f"{quote(text)} earned {' and '.join(f'{total:g}' for total in earned)} in one group",
                "Give equals the same rank; a model learns from the difference, and here there is nothing to learn.",
            )
            return


def _refused(evidence: Evidence, advice: str) -> str:
    """The first reason with this advice for which the results of a group were refused."""
    failed = [answer.rollout.error for answer in evidence.answers if answer.rollout.error]
    ours = (each.message for each in failed if each.where == _HOOK and each.type == "RewardError")
    return next((message for message in ours if advice in message), "")
