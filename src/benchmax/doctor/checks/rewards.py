"""Is the reward a number, the same each time, and does it depend on the answer?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from statistics import median
from typing import Any

from benchmax.doctor.checks.hooks import signature_fix
from benchmax.doctor.evidence import LEAST_NOISE, Evidence, total_of
from benchmax.doctor.findings import Finding, error, info, warning
from benchmax.doctor.probe_player import PlayedAnswer
from benchmax.doctor.quoting import earned, quote
from benchmax.doctor.registry import check, environment, gold, needs, played, repeated, scored
from benchmax.envs.types import Unscored
from benchmax.errors import DeadlineExceeded, RewardError
from benchmax.metrics import EQUAL_WITHIN, pays_more
from benchmax.rollouts.scoring import weights_problem

LARGE = 10.0
ODDITIES = ("odd", "no-number")
"""Kinds of answers that a model hardly ever gives."""
CALLS_WANTED = (
    "If it looks at what tools do, tell the calls of a good answer in gold_tool_calls, so that it can be tried. "
    "Otherwise correct or remove it; a constant teaches nothing."
)


@check("reward-raises", "compute_reward does not raise, whatever the answer", played)
def reward_raises(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.hook("compute_reward")
    failed = {c.rollout_id: c for c in calls if c.error and not isinstance(c.error, DeadlineExceeded)}
    if failed:
        answers = [answer for answer in evidence.answers if answer.rollout.id in failed]
        call = failed[answers[0].rollout.id] if answers else next(iter(failed.values()))
        where = f" on the answer {quote(answers[0].text)} ({answers[0].kind})" if answers else ""
        fix = "Score what cannot be read as 0; return Unscored(reason) when the fault is not the answer's."
        if isinstance(call.error, RewardError):
            fix = "Correct the reward functions: as they are, no answer is scored."
        yield (warning if _rare(evidence, failed) else error)(
            "compute_reward raised.",
            f"in {len(failed)} of {len(calls)} calls, first{where}: {call.message}",
            signature_fix(call) or fix,
        )


def _rare(evidence: Evidence, rollouts: Iterable[str]) -> bool:
    """Whether all of these rollouts are of answers that a model hardly ever gives."""
    return {answer.rollout.id for answer in evidence.answers if answer.kind in ODDITIES}.issuperset(rollouts)


@check("reward-not-finite", "every reward is a finite number", played)
def reward_not_finite(evidence: Evidence) -> Iterator[Finding]:
    for call in [*evidence.hook("compute_reward"), *evidence.hook("compute_group_reward")]:
        for raw in call.value if isinstance(call.value, list) else [call.value]:
            for name, value in raw.items() if isinstance(raw, Mapping) else ():
                if isinstance(value, float) and not math.isfinite(value):
                    yield (warning if _rare(evidence, [call.rollout_id]) else error)(
                        "A reward is not a finite number.",
                        f"{call.hook} returned {name}={value}",
                        "Guard the division or logarithm; return Unscored(reason) when there is no number.",
                    )
                    return
    for answer in evidence.answers:
        failure = answer.rollout.error
        if failure and failure.where == "compute_reward" and "The total of the reward" in failure.message:
            yield (warning if answer.kind in ODDITIES else error)(
                "A total is not a finite number, or far too large.",
                f"{failure.message} Components: {answer.rollout.rewards}",
                "Bring every component between 0 and 1 (clip01).",
            )
            return


@check("bad-weights", "reward_weights is a mapping of finite numbers", environment)
def bad_weights(evidence: Evidence) -> Iterator[Finding]:
    assert evidence.env is not None
    if problem := weights_problem(evidence.env.reward_weights):
        fix = 'Write reward_weights = {"component": number}.'
        yield error("reward_weights cannot be used, so no answer gets a total.", problem, fix)


@check("unknown-weight", "reward_weights names components that exist", played)
def unknown_weight(evidence: Evidence) -> Iterator[Finding]:
    assert evidence.env is not None
    weights: Any = evidence.env.reward_weights
    unknown = [str(name) for name in weights if name not in evidence.components] if isinstance(weights, Mapping) else []
    if unknown and evidence.components:
        yield warning(
            f"reward_weights names components that no answer got: {', '.join(unknown)}.",
            f"the components are {', '.join(sorted(evidence.components))}",
            "Correct the name; a component that is not named counts with weight 1.",
        )


@check("unknown-primary-key", "PRIMARY_REWARD_KEY names a component that exists", played)
def unknown_primary_key(evidence: Evidence) -> Iterator[Finding]:
    assert evidence.env is not None
    key: Any = evidence.env.PRIMARY_REWARD_KEY
    if key is not None and evidence.components and key not in evidence.components:
        yield error(
            f"PRIMARY_REWARD_KEY is {key!r}, a component that no answer got.",
            f"the components are {', '.join(sorted(evidence.components))}",
            "Set it to the component that says whether the task was solved, or to None for the total.",
        )


@check("reward-unscored", "every answer is scored", played)
def reward_unscored(evidence: Evidence) -> Iterator[Finding]:
    answers = [answer for answer in evidence.answers if answer.rollout.unscored and not _elsewhere(evidence, answer)]
    if not answers:
        return
    first = answers[0]
    name, reason = next(iter(first.rollout.unscored.items()))
    on_purpose = all(_returned_unscored(evidence, answer) for answer in answers)
    # A judge may fail on nonsense; failing on the right answer, or on everything, leaves nothing to learn from.
    severe = not on_purpose or not evidence.scored or any(answer.kind == "gold" for answer in answers)
    severe = severe and not _rare(evidence, [answer.rollout.id for answer in answers])
    yield (error if severe else warning)(
        "Answers were left unscored.",
        f"{len(answers)} of {len(evidence.answers)}, first {quote(first.text)} ({first.kind}): {name}: {reason}",
        "Correct the cause that it names: an answer that is not scored teaches nothing."
        if on_purpose
        else 'Return a dict such as {"correct": 1.0}, with the same names and a plain number for each, on every path.',
    )


def _elsewhere(evidence: Evidence, answer: PlayedAnswer) -> bool:
    """Whether another check reports it: an exception, a number that is not finite, weights or group components."""
    where = answer.rollout.error.where if answer.rollout.error else ""
    calls = [c for c in evidence.hook("compute_reward") if c.rollout_id == answer.rollout.id]
    raised = any(call.error for call in calls)
    not_finite = all("finite number" in reason for reason in answer.rollout.unscored.values())
    return raised or where in ("compute_group_reward", "reward_weights") or not_finite


def _returned_unscored(evidence: Evidence, answer: PlayedAnswer) -> bool:
    for call in evidence.hook("compute_reward"):
        if call.rollout_id == answer.rollout.id and isinstance(call.value, Mapping):
            return any(isinstance(value, Unscored) for value in call.value.values())
    return False


@check("slow-reward", "rewards come quickly", played)
def slow_reward(evidence: Evidence) -> Iterator[Finding]:
    calls = [*evidence.hook("compute_reward"), *evidence.hook("compute_group_reward")]
    late = [call for call in calls if isinstance(call.error, DeadlineExceeded)]
    if late:
        fix = "Give calls to servers and subprocesses a time limit of their own."
        yield error("A reward did not come in time.", late[0].message, fix)
    elif calls and (typical := median(call.seconds for call in calls)) > evidence.pace.slow_reward:
        yield warning(
            "Rewards are slow.",
            f"{typical:.2f} s (median of {len(calls)} calls)",
            "Cache what does not change, use a faster judge, or await slow calls so that rollouts overlap.",
        )


@check("reward-mutates-messages", "rewards do not change the messages or the task", played)
def reward_mutates_messages(evidence: Evidence) -> Iterator[Finding]:
    for what in ("messages", "task"):
        if hooks := {call.hook for call in evidence.calls if call.mutated == what}:
            changed = f"{' and '.join(sorted(hooks))} changed {'them' if what == 'messages' else 'it'}"
            fix = f"Work on a copy: {what} = copy.deepcopy({what})."
            yield warning(f"A reward changes the {what} it receives.", changed, fix)


@check("constant-reward", "different answers earn different rewards", scored)
def constant_reward(evidence: Evidence) -> Iterator[Finding]:
    totals = {total for each in evidence.totals for total in each}
    if len(totals) != 1 or len(evidence.scored) < 2:
        return
    value = totals.pop()
    if value <= 0 and evidence.gold.tried:
        return  # reported by nothing-earns, with what to do about it
    kinds = ", ".join(dict.fromkeys(answer.kind for answer in evidence.scored))
    yield error(
        f"Every answer earns {value:g}.",
        f"{len(evidence.scored)} answers on {len({each.example['id'] for each in evidence.scored})} examples: {kinds}",
        "Compare the answer with the task in compute_reward.",
    )


@check("reward-ignores-completion", "the reward looks at the answer", scored)
def reward_ignores_completion(evidence: Evidence) -> Iterator[Finding]:
    tried = [each for each in evidence.totals if len(each) > 3]
    everywhere = {total for each in evidence.totals for total in each}
    if len(tried) > 1 and all(len(set(each)) == 1 for each in tried) and len(everywhere) > 1:
        yield error(
            "The reward depends on the row alone.",
            f"on each of {len(tried)} examples every answer earns the same, {min(everywhere):g} to {max(everywhere):g}",
            "Score extract_completion_text(messages), not the prompt or the task, and keep no earlier verdict.",
        )


@check("nondeterministic-reward", "the same answer earns the same", repeated)
def nondeterministic_reward(evidence: Evidence) -> Iterator[Finding]:
    if evidence.noise > LEAST_NOISE:
        same = evidence.most_varied
        yield (error if evidence.erratic else warning)(
            "The same answer earns different rewards.",
            f"{quote(same[0].text)} earned {', '.join(f'{total_of(each):g}' for each in same)}",
            "Take chance, time and the memory of earlier answers out of the reward. For a judge, set temperature 0 and "
            "cache its verdicts.",
        )


@check("saturated-reward", "there is room between a bad and a good answer", gold)
def saturated_reward(evidence: Evidence) -> Iterator[Finding]:
    best = evidence.mean("gold")
    low = min(total_of(answer) for answer in evidence.scored)
    if best is not None and best > low >= 0.9 * best > 0:
        yield warning(
            "All answers earn nearly the maximum.",
            f"gold earns {best:g}, the worst answer {low:g}",
            "Pay less for what every answer has, so that better answers stand out.",
        )


@check("dead-component", "every component varies", scored)
def dead_component(evidence: Evidence) -> Iterator[Finding]:
    values = _component_values(evidence)
    for name, seen in values.items() if evidence.gold.works else ():  # else no answer is known for which it would vary
        if len(values) > 1 and len(seen) > 3 and not pays_more(max(seen), min(seen)):
            yield warning(
                f"The component {name!r} never changes.",
                f"it is {seen[0]:g} for all {len(seen)} answers",
                CALLS_WANTED if evidence.calls_unknown else "Correct or remove it; a constant teaches nothing.",
            )


@check("mirrored-component", "no component repeats another", scored)
def mirrored_component(evidence: Evidence) -> Iterator[Finding]:
    rewards = [answer.rollout.rewards for answer in evidence.scored]
    names = sorted({name for each in rewards for name in each})
    for a, b in combinations(names, 2):
        pairs = [(each[a], each[b]) for each in rewards if a in each and b in each]
        varies = len({x for x, _ in pairs}) > 1
        if len(pairs) > 3 and varies and all(abs(x - y) < EQUAL_WITHIN for x, y in pairs):
            yield warning(
                f"{a!r} and {b!r} are always equal.",
                f"on all {len(pairs)} answers",
                "Remove one, or weight the other; equal components only double its weight.",
            )


@check("ragged-components", "every answer has the same components", played)
def ragged_components(evidence: Evidence) -> Iterator[Finding]:
    texts = {answer.rollout.id: answer.text for answer in evidence.answers}
    sets: dict[frozenset[str], str] = {}
    for call in evidence.hook("compute_reward"):
        if isinstance(call.value, Mapping) and call.value and call.rollout_id in texts:
            sets.setdefault(frozenset(map(str, call.value)), texts[call.rollout_id])
    if len(sets) > 1:
        seen = "; ".join(f"{{{', '.join(sorted(names))}}} for {quote(text)}" for names, text in list(sets.items())[:3])
        yield warning(
            "Answers have different components.",
            seen,
            "Return every component on every path, 0.0 where it does not apply: one that is missing counts as 0, and "
            "its average says little.",
        )


@check("unbounded-component", f"components stay within ±{LARGE:g}", scored)
def unbounded_component(evidence: Evidence) -> Iterator[Finding]:
    weights = getattr(evidence.env, "reward_weights", None) or {}
    for name, seen in _component_values(evidence).items():
        weight = weights.get(name, 1.0) if isinstance(weights, Mapping) else 1.0
        if max(map(abs, seen)) * min(1.0, abs(weight)) > LARGE:
            worst = max(evidence.scored, key=lambda answer: abs(answer.rollout.rewards.get(name, 0.0)))
            yield warning(
                f"The component {name!r} is large.",
                f"{name}={worst.rollout.rewards[name]:g} for {quote(worst.text)}",
                "Bring it between 0 and 1 (clip01), and weight it with reward_weights.",
            )
        elif min(seen) < 0:
            yield info(
                f"The component {name!r} can be negative.",
                f"lowest {min(seen):g}",
                "Fine, if it is meant as a penalty.",
            )


def _component_values(evidence: Evidence) -> dict[str, list[float]]:
    values: dict[str, list[float]] = defaultdict(list)
    for answer in evidence.scored:
        for name, value in answer.rollout.rewards.items():
            values[name].append(value)
    return values


_HISTORY = needs(lambda evidence: evidence.history, "no row has an earlier assistant turn", after=scored)


@check("reward-scores-prompt-turns", "earlier turns of the conversation are not scored", _HISTORY)
def reward_scores_prompt_turns(evidence: Evidence) -> Iterator[Finding]:
    fix = "Read messages.completion, or extract_completion_text(messages), not every assistant turn of messages."
    title = "An answer of an earlier turn of the conversation is scored."
    for blank in (answer for answer in evidence.history if answer.kind == "old-blank"):
        same = [each for each in evidence.of("garbage", "first") if each.text == blank.text]
        usual = next((each for each in same if each.example["id"] == blank.example["id"]), None)
        if usual and blank.total is not None and abs(total_of(usual) - blank.total) > evidence.noise + LEAST_NOISE:
            found = f"{quote(usual.text)} earned {earned(usual)}, and {earned(blank)} after turns of nonsense"
            yield error(title, found, fix)
            return
    best, low = evidence.mean("gold"), evidence.mean("garbage") or 0.0
    if best is None or not evidence.gold_works:
        return
    middle = (best + low) / 2
    for answer in (each for each in evidence.history if each.kind != "old-blank"):
        if answer.total is not None and (answer.total < middle) != (answer.kind == "old-gold"):
            which = "the right" if answer.kind == "old-gold" else "a wrong"
            found = f"{quote(answer.text)} earned {earned(answer)} after an earlier turn with {which} answer"
            yield error(title, found, fix)
            return
