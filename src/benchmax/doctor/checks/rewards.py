"""Is the reward a number, the same each time, and does it depend on the answer?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from statistics import median
from typing import Any

from benchmax.doctor.evidence import Evidence
from benchmax.doctor.findings import Finding, error, info, warning
from benchmax.doctor.probe_player import Shot
from benchmax.doctor.registry import check, environment, gold, played, repeated, scored
from benchmax.doctor.words import paid, shown
from benchmax.envs.types import Unscored
from benchmax.errors import DeadlineExceeded, RewardError
from benchmax.rollouts.scoring import weights_problem

LARGE = 10.0
CALLS_WANTED = (
    "If it looks at what tools do, tell the calls of a good answer in gold_tool_calls, so that it can be tried. "
    "Otherwise correct or remove it; a constant teaches nothing."
)


@check("reward-raises", "compute_reward does not raise, whatever the answer", played)
def reward_raises(evidence: Evidence) -> Iterator[Finding]:
    failed = {
        c.rollout_id: c
        for c in evidence.hook("compute_reward")
        if c.error and not isinstance(c.error, DeadlineExceeded)
    }
    shots = [shot for shot in evidence.shots if shot.rollout.id in failed]
    if failed:
        call = failed[shots[0].rollout.id] if shots else next(iter(failed.values()))
        answer = f" on the answer {shown(shots[0].text)} ({shots[0].kind})" if shots else ""
        fix = "Score what cannot be read as 0; return Unscored(reason) when the fault is not the answer's."
        if isinstance(call.error, RewardError):
            fix = "Correct the reward functions: as they are, no answer is scored."
        yield error(
            "compute_reward raised.",
            f"in {len(failed)} of {len(evidence.hook('compute_reward'))} calls, first{answer}: {call.said}",
            fix,
        )


@check("reward-not-finite", "every reward is a finite number", played)
def reward_not_finite(evidence: Evidence) -> Iterator[Finding]:
    for call in [*evidence.hook("compute_reward"), *evidence.hook("compute_group_reward")]:
        for raw in call.value if isinstance(call.value, list) else [call.value]:
            for name, value in raw.items() if isinstance(raw, Mapping) else ():
                if isinstance(value, float) and not math.isfinite(value):
                    yield error(
                        "A reward is not a finite number.",
                        f"{call.hook} gave {name}={value}",
                        "Guard the division or logarithm; return Unscored(reason) when there is no number.",
                    )
                    return

    for shot in evidence.shots:
        failure = shot.rollout.error
        if failure and failure.where == "compute_reward" and "The total of the reward" in failure.message:
            yield error(
                "A total is not a finite number, or far too large.",
                f"{failure.message} Components: {shot.rollout.rewards}",
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
            f"reward_weights names what no answer was given: {', '.join(unknown)}.",
            f"the components are {', '.join(sorted(evidence.components))}",
            "Correct the name; a component that is not named counts with weight 1.",
        )


@check("unknown-primary-key", "PRIMARY_REWARD_KEY names a component that exists", played)
def unknown_primary_key(evidence: Evidence) -> Iterator[Finding]:
    assert evidence.env is not None
    key: Any = evidence.env.PRIMARY_REWARD_KEY
    if key is not None and evidence.components and key not in evidence.components:
        yield error(
            f"PRIMARY_REWARD_KEY is {key!r}, which no answer was given.",
            f"the components are {', '.join(sorted(evidence.components))}",
            "Set it to the component that says whether the task was solved, or to None for the total.",
        )


@check("reward-unscored", "every answer is scored", played)
def reward_unscored(evidence: Evidence) -> Iterator[Finding]:
    shots = [shot for shot in evidence.shots if shot.rollout.unscored and not _elsewhere(evidence, shot)]
    if not shots:
        return
    name, reason = next(iter(shots[0].rollout.unscored.items()))
    on_purpose = all(_said_unscored(evidence, shot) for shot in shots)
    # A judge may fail on nonsense; failing on the right answer, or on everything, leaves nothing to learn from.
    grave = not on_purpose or not evidence.scored or any(shot.kind == "gold" for shot in shots)
    yield (error if grave else warning)(
        "Answers were left unscored.",
        f"{len(shots)} of {len(evidence.shots)}, first {shown(shots[0].text)} ({shots[0].kind}): {name}: {reason}",
        "Mend what it tells of: an answer that is not scored teaches nothing."
        if on_purpose
        else 'Return a dict such as {"correct": 1.0}, with the same names and a plain number for each, on every path.',
    )


def _elsewhere(evidence: Evidence, shot: Shot) -> bool:
    """Whether another check tells of it: an exception, a number that is not finite, uneven or group components."""
    where = shot.rollout.error.where if shot.rollout.error else ""
    calls = [c for c in evidence.hook("compute_reward") if c.rollout_id == shot.rollout.id]
    raised = any(call.error for call in calls)
    reasons = shot.rollout.unscored.values()
    told = all("finite number" in reason for reason in reasons)
    return raised or where in ("compute_group_reward", "reward_weights") or told


def _said_unscored(evidence: Evidence, shot: Shot) -> bool:
    for call in evidence.hook("compute_reward"):
        if call.rollout_id == shot.rollout.id and isinstance(call.value, Mapping):
            return any(isinstance(value, Unscored) for value in call.value.values())
    return False


@check("slow-reward", "rewards come quickly", played)
def slow_reward(evidence: Evidence) -> Iterator[Finding]:
    calls = [*evidence.hook("compute_reward"), *evidence.hook("compute_group_reward")]
    late = [call for call in calls if isinstance(call.error, DeadlineExceeded)]
    if late:
        yield error(
            "A reward did not come in time.",
            late[0].said,
            "Give calls to servers and subprocesses a time limit of their own.",
        )
    elif calls and (typical := median(call.seconds for call in calls)) > evidence.pace.slow_reward:
        yield warning(
            "Rewards are slow.",
            f"{typical:.2f} s (median of {len(calls)} calls)",
            "Cache what does not change, use a faster judge, or await slow calls so that rollouts overlap.",
        )


@check("reward-mutates-messages", "rewards do not change the messages", played)
def reward_mutates_messages(evidence: Evidence) -> Iterator[Finding]:
    guilty = {call.hook for call in evidence.calls if call.mutated}
    if guilty:
        yield warning(
            "A reward changes the messages it is given.",
            f"{' and '.join(sorted(guilty))} changed their messages",
            "Work on a copy: messages = [dict(m) for m in messages].",
        )


@check("constant-reward", "different answers earn different rewards", scored)
def constant_reward(evidence: Evidence) -> Iterator[Finding]:
    totals = {round(_total(shot), 9) for shot in evidence.scored}
    if len(totals) != 1 or len(evidence.scored) < 2:
        return
    value = totals.pop()
    if value <= 0 and evidence.gold.tried:
        return  # told by nothing-earns, with what to do about it
    kinds = ", ".join(dict.fromkeys(shot.kind for shot in evidence.scored))
    yield error(
        f"Every answer earns {value:g}.",
        f"{len(evidence.scored)} answers on {_examples(evidence)} examples: {kinds}",
        "Compare the answer with the task in compute_reward.",
    )


@check("reward-ignores-completion", "the reward looks at the answer", scored)
def reward_ignores_completion(evidence: Evidence) -> Iterator[Finding]:
    by_example: dict[str, set[float]] = defaultdict(set)
    answers: dict[str, int] = defaultdict(int)
    for shot in evidence.scored:
        by_example[shot.example["id"]].add(round(_total(shot), 9))
        answers[shot.example["id"]] += 1
    tried = [totals for example, totals in by_example.items() if answers[example] > 3]
    everywhere = {total for totals in by_example.values() for total in totals}
    if len(tried) > 1 and all(len(totals) == 1 for totals in tried) and len(everywhere) > 1:
        yield error(
            "The reward depends on the row alone.",
            f"on each of {len(tried)} examples every answer earns the same, {min(everywhere):g} to {max(everywhere):g}",
            "Score extract_completion_text(messages), not the prompt or the task.",
        )


@check("nondeterministic-reward", "the same answer earns the same", repeated)
def nondeterministic_reward(evidence: Evidence) -> Iterator[Finding]:
    spreads = []
    for same in evidence.repeats:
        totals = [shot.total for shot in same if shot.total is not None]
        if totals:
            spreads.append((max(totals) - min(totals), totals, same[0]))
    if not spreads:
        return
    spread, totals, shot = max(spreads, key=lambda each: each[0])
    scale = max((abs(_total(each)) for each in evidence.scored), default=1.0) or 1.0
    if spread > 1e-6:
        yield (error if spread >= 0.5 * scale else warning)(
            "The same answer earns different rewards.",
            f"{shown(shot.text)} earned {', '.join(f'{total:g}' for total in totals)}",
            "Take chance and time out of the reward. For a judge, set temperature 0 and cache its verdicts.",
        )


@check("saturated-reward", "there is room between a bad and a good answer", gold)
def saturated_reward(evidence: Evidence) -> Iterator[Finding]:
    best = evidence.mean("gold")
    low = min(_total(shot) for shot in evidence.scored)
    if best is not None and best > low >= 0.9 * best > 0:
        yield warning(
            "All answers earn nearly the most.",
            f"gold earns {best:g}, the worst answer {low:g}",
            "Pay less for what every answer has, so that better answers stand out.",
        )


@check("dead-component", "every component varies", scored)
def dead_component(evidence: Evidence) -> Iterator[Finding]:
    values = _component_values(evidence)
    for name, seen in values.items() if evidence.gold.works else ():  # else no answer is known that it would vary for
        if len(values) > 1 and len(seen) > 3 and max(seen) - min(seen) < 1e-9:
            yield warning(
                f"The component {name!r} never changes.",
                f"it is {seen[0]:g} for all {len(seen)} answers",
                CALLS_WANTED if evidence.calls_unknown else "Correct or remove it; a constant teaches nothing.",
            )


@check("mirrored-component", "no component repeats another", scored)
def mirrored_component(evidence: Evidence) -> Iterator[Finding]:
    rewards = [shot.rollout.rewards for shot in evidence.scored]
    names = sorted({name for each in rewards for name in each})
    for a, b in combinations(names, 2):
        pairs = [(each[a], each[b]) for each in rewards if a in each and b in each]
        varies = len({x for x, _ in pairs}) > 1
        if len(pairs) > 3 and varies and all(abs(x - y) < 1e-9 for x, y in pairs):
            yield warning(
                f"{a!r} and {b!r} are always equal.",
                f"on all {len(pairs)} answers",
                "Remove one, or weight the other; equal components only double its weight.",
            )


@check("ragged-components", "every answer has the same components", played)
def ragged_components(evidence: Evidence) -> Iterator[Finding]:
    texts = {shot.rollout.id: shot.text for shot in evidence.shots}
    sets: dict[frozenset[str], str] = {}
    for call in evidence.hook("compute_reward"):
        if isinstance(call.value, Mapping) and call.value and call.rollout_id in texts:
            sets.setdefault(frozenset(map(str, call.value)), texts[call.rollout_id])
    if len(sets) > 1:
        seen = "; ".join(f"{{{', '.join(sorted(names))}}} for {shown(text)}" for names, text in list(sets.items())[:3])
        yield warning(
            "Answers have different components.",
            seen,
            "Return every component on every path, 0.0 where it does not apply: one that is missing counts as 0, and "
            "its average says little.",
        )


@check("unbounded-component", f"components stay within ±{LARGE:g}", scored)
def unbounded_component(evidence: Evidence) -> Iterator[Finding]:
    for name, seen in _component_values(evidence).items():
        if max(map(abs, seen)) > LARGE:
            worst = max(evidence.scored, key=lambda shot: abs(shot.rollout.rewards.get(name, 0.0)))
            yield warning(
                f"The component {name!r} is large.",
                f"{name}={worst.rollout.rewards[name]:g} for {shown(worst.text)}",
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
    for shot in evidence.scored:
        for name, value in shot.rollout.rewards.items():
            values[name].append(value)
    return values


@check(
    "reward-scores-prompt-turns",
    "earlier turns of the conversation are not scored",
    lambda evidence: _no_history(evidence),
)
def reward_scores_prompt_turns(evidence: Evidence) -> Iterator[Finding]:
    fix = "Read messages.completion, or extract_completion_text(messages), not every assistant turn of messages."
    best, low = evidence.mean("gold"), evidence.mean("garbage") or 0.0
    if best is None or not evidence.gold_works:
        return
    middle = (best + low) / 2
    for shot in evidence.history:
        total = shot.total
        if total is None or (total < middle) == (shot.kind == "old-gold"):
            continue
        yield error(
            "An answer given earlier in the conversation is scored.",
            f"{shown(shot.text)} earned {paid(shot)} after an earlier turn "
            f"{'with the right' if shot.kind == 'old-gold' else 'with a wrong'} answer",
            fix,
        )
        return


def _no_history(evidence: Evidence) -> str | None:
    return gold(evidence) or (None if evidence.history else "no row has an earlier assistant turn")


def _total(shot: Shot) -> float:
    total: Any = shot.total
    return float(total)


def _examples(evidence: Evidence) -> int:
    return len({shot.example["id"] for shot in evidence.scored})
