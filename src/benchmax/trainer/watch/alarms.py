"""Alarms for the ways a run goes wrong while its loss looks fine.

Each alarm looks at the metrics of the last steps and at the step's rollouts, and says what it saw, why it matters and
what to do. An alarm that rang is quiet for one window.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmax import metrics
from benchmax.rollouts.record import Rollout, Termination
from benchmax.trainer.config import WatchConfig
from benchmax.trainer.learning.advantage import CUT_OFF, NO_SIGNAL, NO_TOKENS, TOO_FEW, UNSCORED

Groups = Sequence[Sequence[Rollout]]
Values = Mapping[str, float]

ENDS = 3
"""Steps averaged at either end of a window, against noise."""
FIRST_STEPS = 4
"""Steps without any signal, from the first on, after which it is said: nobody should wait longer for nothing."""
SURE = 2.5
"""Standard errors by which a mean must have fallen, to be more than chance."""
ROOM = 1 / 3
"""A mean reward this close to the best one seen, in spreads of a step's rewards, is as good as the best. Where answers
earn 0 or 1 that is five of six."""
STILL = 0.02
"""A smaller part of the range of rewards seen is no change of the mean."""
MOST_UNSCORED = 0.25
"""A larger share of rollouts without a reward is told."""
REASON_CHARS = 600
"""Of the environment's words in ours."""
HIGH_LR = 1e-2
"""Beyond this AdamW's steps destroy a language model sooner than they teach it."""
PREFIX, SUFFIX = "reward_stats/", "/reward/mean"
SILENT = {
    NO_SIGNAL: "the samples of {} got equal rewards",
    UNSCORED: "too few samples of {} got a reward",
    NO_TOKENS: "too few samples of {} have tokens to learn from",
    CUT_OFF: "too many samples of {} were cut off",
    TOO_FEW: "too few samples of {} were drawn",
}
"""Why a group has nothing to teach; the first that is found among its samples."""


@dataclass(slots=True)
class Alert:
    """Something to look at."""

    kind: str
    step: int
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    rollouts: list[str] = field(default_factory=list)
    """Ids of rollouts that show it."""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "kind"} | {"alert": self.kind}


class Watchdogs:
    """Sees every training step once."""

    def __init__(self, config: WatchConfig = WatchConfig()) -> None:
        self.config = config
        self.history: list[dict[str, float]] = []
        self.rang: dict[str, int] = {}
        self.tops: dict[str, float] = {}
        """Highest single value seen of each reward component."""
        self.vocabulary = 0
        """Tokens the model chooses from, which bounds its entropy; 0 when not known."""

    def look(self, step: int, values: Values, groups: Groups) -> list[Alert]:
        """Take in one step; gives the alarms it sets off."""
        self.history.append({**values, **_silent_groups(groups)})
        for rollout in _each(groups):
            for name, value in rollout.rewards.items():
                self.tops[name] = max(value, self.tops.get(name, value))
        return self._ringing(alert for alarm in ALARMS for alert in alarm(self, step, groups))

    def look_at_held_out(self, step: int, best: float | None, now: float | None, groups: Groups) -> list[Alert]:
        """Take in one evaluation, after `step`, and the best one before it."""
        return self._ringing((*held_out_collapse(self, step, best, now, groups), *held_out_unscored(step, groups)))

    def _ringing(self, alerts: Iterable[Alert]) -> list[Alert]:
        """Those whose alarm has not rung for a window."""
        rings = []
        for alert in alerts:
            if alert.step - self.rang.get(alert.kind, -(10**9)) >= self.config.window:
                self.rang[alert.kind] = alert.step
                rings.append(alert)
        return rings

    def state(self) -> dict[str, Any]:
        return {"history": self.history, "rang": self.rang, "tops": self.tops}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.history, self.rang, self.tops = list(state["history"]), dict(state["rang"]), dict(state["tops"])

    def series(self, name: str) -> list[float]:
        """A metric over all steps that have it."""
        return [values[name] for values in self.history if name in values]

    @property
    def lowest(self) -> float:
        """The lowest reward of any answer so far, at most 0."""
        return min([0.0, *self.series(metrics.REWARD_MIN)])

    @property
    def highest(self) -> float:
        """The highest reward of any answer so far."""
        return max(self.series(metrics.REWARD_MAX), default=-math.inf)

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest reward of any answer so far."""
        return _scale(self)

    def window(self, name: str) -> list[float]:
        return self.series(name)[-self.config.window :]


def reward_collapse(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    means = _smooth(dogs.series(metrics.REWARD))
    if len(means) < 2:
        return
    best, now = max(means), means[-1]
    if _collapsed(dogs, best, now) and best - now > _chance(dogs):
        yield Alert(
            "reward_collapse",
            step,
            f"The mean reward fell from {best:.2f} to {now:.2f}. Go back to the best checkpoint and lower optim.lr, "
            "or add algorithm.kl.",
            {"best": best, "now": now},
            _lowest(groups),
        )


def held_out_collapse(
    dogs: Watchdogs, step: int, best: float | None, now: float | None, groups: Groups
) -> Iterator[Alert]:
    rewards = [rollout.reward for rollout in _each(groups) if rollout.reward is not None]
    chance = SURE * _spread_of(dogs, rewards, best) * math.sqrt(2 / len(rewards)) if rewards else 0.0
    if best is not None and now is not None and _collapsed(dogs, best, now) and best - now > chance:
        yield Alert(
            "held_out_collapse",
            step,
            f"The mean held-out reward fell from {best:.2f} to {now:.2f}. Go back to the best checkpoint and lower "
            "optim.lr, or add algorithm.kl.",
            {"best": best, "now": now},
            _lowest(groups),
        )


def _spread_of(dogs: Watchdogs, rewards: Sequence[float], best: float | None) -> float:
    """How far answers differ in reward: those of now, or as far as a mean like the best one lets them. Where all earn
    nothing now, theirs says nothing about what was."""
    low, high = _scale(dogs)
    possible = math.sqrt(max(0.0, (best - low) * (high - best))) if best is not None else 0.0
    return max(statistics.pstdev(rewards), possible)


def _chance(dogs: Watchdogs) -> float:
    """A difference between two means of a few steps that chance alone makes: prompts differ in difficulty."""
    groups = sum(values.get("groups", 0.0) for values in dogs.history[-ENDS:])
    return SURE * _spread(dogs) * math.sqrt(2 / groups) if groups else 0.0


def held_out_unscored(step: int, groups: Groups) -> Iterator[Alert]:
    rollouts = list(_each(groups))
    failed = [rollout for rollout in rollouts if rollout.reward is None]
    if len(failed) > MOST_UNSCORED * len(rollouts):
        share = len(failed) / len(rollouts)
        yield Alert(
            "held_out_unscored",
            step,
            f"{share:.0%} of the held-out rollouts got no reward, and the held-out reward leaves them out; with fewer "
            "than algorithm.min_scored of them scored, an evaluation does not count. The most common reason: "
            f"{most_common_error(groups)}. Fix the environment, its judge or these rows.",
            {"share": share},
            _ids(failed),
        )


def _collapsed(dogs: Watchdogs, best: float, now: float) -> bool:
    """Whether half of what there was to lose is lost, and that is not next to nothing."""
    low, high = _scale(dogs)
    return best - now > max(0.1 * (high - low), 0.5 * (best - low))


def all_equal(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """Every sample of every group earns the same, and less than was reached: nothing leads back up."""
    recent = dogs.history[-ENDS:]
    means = _smooth(dogs.series(metrics.REWARD))
    if len(recent) < ENDS or len(means) < 2 or any(values.get(metrics.GROUPS_USED) for values in recent):
        return
    best, now = max(means), means[-1]
    low, high = _scale(dogs)
    if best - now > 0.1 * (high - low) > 0:
        yield Alert(
            "all_equal",
            step,
            f"For {ENDS} steps all samples of each prompt earned the same, {now:.2f} on average where {best:.2f} was "
            "reached. Go back to the best checkpoint and lower optim.lr.",
            {"best": best, "now": now},
            _lowest(groups),
        )


def entropy_collapse(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    entropies = dogs.series("entropy")
    if len(entropies) < dogs.config.window:
        return
    first, now = statistics.fmean(entropies[:ENDS]), statistics.fmean(entropies[-ENDS:])
    rewards = dogs.series(metrics.REWARD)[-ENDS:]
    if now < 0.05 * first and rewards and _has_room(dogs, reward := statistics.fmean(rewards)):
        best = dogs.highest
        yield Alert(
            "entropy_collapse",
            step,
            f"The model is nearly certain of every token (entropy {first:.3f} → {now:.3f}) but earns {reward:.3g} "
            f"on average, where the best answer earned {best:.3g}: it can no longer explore. Lower optim.lr, raise "
            "algorithm.clip_high or the temperature.",
            {"first": first, "now": now, "reward": reward, "best": best},
            _lowest(groups),
        )


def entropy_blow_up(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """The model comes close to drawing tokens evenly; one that began like that has not lost anything."""
    entropies = dogs.series("entropy")
    if len(entropies) < 2 * ENDS or dogs.vocabulary < 2:
        return
    most = math.log(dogs.vocabulary)
    first, now = statistics.fmean(entropies[:ENDS]), statistics.fmean(entropies[-ENDS:])
    if now > 0.5 * most and now - first > 0.25 * most:
        yield Alert(
            "entropy_blow_up",
            step,
            f"The model chooses its tokens almost at random (entropy {first:.2f} → {now:.2f}; evenly over its "
            f"vocabulary is {most:.2f}): it is being destroyed. Go back to the best checkpoint and lower optim.lr, "
            "or add algorithm.kl.",
            {"first": first, "now": now, "most": most},
            _longest(groups),
        )


def length_blow_up(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """Longer answers may earn more; not when nothing is gained, or when hardly one comes to its end."""
    lengths, rewards = dogs.series(metrics.RESPONSE_TOKENS), dogs.series(metrics.REWARD)
    if min(len(lengths), len(rewards)) < dogs.config.window:
        return
    first, now = statistics.fmean(lengths[:ENDS]), statistics.fmean(lengths[-ENDS:])
    gained = statistics.fmean(rewards[-ENDS:]) - statistics.fmean(rewards[:ENDS])
    cut = statistics.fmean(dogs.series("truncated")[-ENDS:] or [0.0])
    low, high = _scale(dogs)
    in_vain = gained < 0.05 * (high - low)
    if now > 2 * first and now - first > 8 and (in_vain or cut > 0.5):
        yield Alert(
            "length_blow_up",
            step,
            f"Answers grew from {first:.0f} to {now:.0f} tokens "
            + ("without more reward. " if in_vain else f"and {cut:.0%} are cut off: length may be what is paid. ")
            + "Use algorithm.normalise = 'constant' or a reward that asks for short answers.",
            {"first": first, "now": now, "reward_gain": gained, "truncated": cut},
            _longest(groups),
        )


def all_cut_off(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    shares = dogs.series("truncated")[-ENDS:]
    if len(shares) == ENDS and min(shares) >= 0.95:
        yield Alert(
            "all_cut_off",
            step,
            f"{statistics.fmean(shares):.0%} of the answers of the last {ENDS} steps were cut off at "
            f"{_cut_at(groups)}. Raise it if they need the room; if not, the model does not end its turn: "
            "lower optim.lr if it once did, or show it how in a warm start.",
            {"truncated": shares[-1]},
            _longest(groups),
        )


def _cut_at(groups: Groups) -> str:
    """The settings that cut these answers."""
    ends = {rollout.termination for rollout in _each(groups) if rollout.cut_off}
    if Termination.TOKEN_BUDGET not in ends:
        return "rollouts.max_new_tokens"
    return "rollouts.max_tokens" if len(ends) == 1 else "rollouts.max_new_tokens or rollouts.max_tokens"


def component_saturated(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """One easy component is paid in full while another never is: the model has found the cheap half of the reward."""
    names = [key[len(PREFIX) : -len(SUFFIX)] for key in dogs.history[-1] if key.startswith(PREFIX)]
    windows = {name: dogs.window(f"{PREFIX}{name}{SUFFIX}") for name in names}
    full = {name: values for name, values in windows.items() if len(values) >= dogs.config.window}
    paid = [name for name, values in full.items() if _top(dogs, name) and min(values) >= 0.9 * _top(dogs, name)]
    scale = max((_top(dogs, name) for name in paid), default=0.0)
    rest = [name for name in full if name not in paid]
    flat = [name for name in rest if _stuck(full[name], max(scale, _top(dogs, name)))]
    if paid and flat:
        stuck = sorted(_each(groups), key=lambda rollout: sum(rollout.rewards.get(name, 0) for name in flat))
        yield Alert(
            "component_saturated",
            step,
            f"{', '.join(paid)} is paid in full for {dogs.config.window} steps while {', '.join(flat)} does not move. "
            "The model may have found a shortcut: read the examples, and pay for the first only with the second.",
            {"saturated": {name: full[name][-1] for name in paid}, "flat": {name: full[name][-1] for name in flat}},
            _ids(stuck),
        )


def repetition(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    rollouts = list(_each(groups))
    looping = [rollout for rollout in rollouts if is_repetitive(_sampled(rollout))]
    if rollouts and len(looping) > 0.3 * len(rollouts):
        yield Alert(
            "repetition",
            step,
            f"{len(looping)} of {len(rollouts)} answers repeat themselves. Check that the model can end its turn, "
            "lower rollouts.max_new_tokens, or stop paying for repeated text.",
            {"share": len(looping) / len(rollouts)},
            _ids(looping),
        )


def too_long(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    rollouts = list(_each(groups))
    over = [rollout for rollout in rollouts if _is_too_long(rollout)]
    if rollouts and len(over) > len(rollouts) / 4:
        share = len(over) / len(rollouts)
        yield Alert(
            "too_long",
            step,
            f"{share:.0%} of the rollouts did not fit the model's context: a prompt that does not is left out, a "
            "conversation that grows out of it is cut off. Shorten the prompts or what tools answer, or take a model "
            "with a longer context.",
            {"share": share},
            _ids(over),
        )


def _is_too_long(rollout: Rollout) -> bool:
    return rollout.termination is Termination.CONTEXT_EXCEEDED


def nothing_learned(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """Once, early: no group of any step had signal, so no update has happened yet."""
    history = dogs.history
    scored = any(metrics.REWARD in values for values in history)
    if len(history) == FIRST_STEPS and scored and not any(values.get(metrics.GROUPS_USED) for values in history):
        yield Alert(
            "nothing_learned",
            step,
            f"Nothing to learn from yet: in all {len(history)} steps {_why_silent(history)}, so no update has "
            "happened. " + _more_signal(history, groups),
            _silence(history),
            _ids(_each(groups)),
        )


def no_signal(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    recent = dogs.history[-dogs.config.equal_steps :]
    if len(recent) == dogs.config.equal_steps and all(values.get(metrics.GROUPS_USED, 0) == 0 for values in recent):
        yield Alert(
            "no_signal",
            step,
            f"For {len(recent)} steps {_why_silent(recent)}, so nothing was learned. " + _more_signal(recent, groups),
            _silence(recent),
            _ids(_each(groups)),
        )


def _silent_groups(groups: Groups) -> dict[str, float]:
    """Groups with nothing to teach, counted by the reason, as values of a step."""
    found: Counter[str] = Counter()
    for group in groups:
        reasons = {rollout.discarded for rollout in group}
        if None not in reasons:
            found.update([reason for reason in SILENT if reason in reasons][:1])
    return {f"silent/{reason}": float(count) for reason, count in found.items()}


def _reasons(steps: Sequence[Values]) -> dict[str, int]:
    """Silent groups of these steps by reason, the most common first."""
    counts = Counter({reason: int(sum(step.get(f"silent/{reason}", 0) for step in steps)) for reason in SILENT})
    return {reason: count for reason, count in counts.most_common() if count}


def _why_silent(steps: Sequence[Values]) -> str:
    reasons = _reasons(steps)
    total = sum(reasons.values())
    told = [
        SILENT[reason].format("each prompt" if count == total else f"{count} of {total} prompts")
        for reason, count in reasons.items()
    ]
    earned = _earned(steps) if list(reasons) == [NO_SIGNAL] else ""
    return (", ".join(told) or "no group of samples had signal") + earned


def _earned(steps: Sequence[Values]) -> str:
    low, high = _range(steps)
    return f" (all {low:g})" if low == high else f" (from {low:g} to {high:g})"


def _silence(steps: Sequence[Values]) -> dict[str, Any]:
    low, high = _range(steps)
    return {"steps": len(steps), "groups": _reasons(steps), "lowest": low, "highest": high}


def _range(steps: Sequence[Values]) -> tuple[float | None, float | None]:
    """The lowest and the highest reward of these steps."""
    low = min((values[metrics.REWARD_MIN] for values in steps if metrics.REWARD_MIN in values), default=None)
    return low, max((values[metrics.REWARD_MAX] for values in steps if metrics.REWARD_MAX in values), default=None)


def _more_signal(steps: Sequence[Values], groups: Groups) -> str:
    """Advice in words that fit both the settings of `benchmax train` and the arguments of a launch."""
    if next(iter(_reasons(steps)), None) == UNSCORED and any(rollout.reward is None for rollout in _each(groups)):
        return f"The most common reason: {most_common_error(groups)}. Put that right first."
    return (
        "Read the examples. Where answers earn all there is, take harder rows; where not, try more samples per prompt "
        "(group_size), a warm start on examples (supervised), the form shown in the prompt, or a reward that gives "
        "partial credit."
    )


def drift(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    gap = dogs.history[-1].get("drift", 0.0)
    if gap > dogs.config.drift:
        yield Alert(
            "drift",
            step,
            f"Trainer and sampler disagree on log-probs by {gap:.3f} on average. Keep algorithm.importance_cap on, use "
            "model.sampler_dtype = 'float32', and check rollouts.top_p.",
            {"drift": gap},
        )


def not_moving(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    rewards = dogs.series(metrics.REWARD)
    if len(rewards) < 2 * dogs.config.window or not dogs.history[-1].get(metrics.GROUPS_USED):
        return
    recent = rewards[-2 * dogs.config.window :]
    half = len(recent) // 2
    before, now = statistics.fmean(recent[:half]), statistics.fmean(recent[half:])
    seen = dogs.highest - min(dogs.series(metrics.REWARD_MIN), default=math.inf)
    if abs(now - before) < STILL * seen and _has_room(dogs, now):
        lr = dogs.history[-1].get("lr", 0.0)
        advice = (
            f"Try optim.lr {3 * lr:.1e} instead of {lr:.1e}, or a larger rollouts.group_size."
            if 3 * lr <= HIGH_LR
            else f"optim.lr is high already ({lr:.1e}), and a higher one would destroy the model: try a lower one, a "
            "larger rollouts.group_size, or a reward that gives partial credit."
        )
        yield Alert(
            "not_moving",
            step,
            f"The reward has not moved for {len(recent)} steps (at {now:.3g} on average; the best answer earned "
            f"{dogs.highest:.3g}). {advice}",
            {"before": before, "now": now, "best": dogs.highest, "lr": lr},
        )


def not_finite(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    skipped = dogs.history[-1].get(metrics.SKIPPED_UPDATES, 0.0)
    if skipped:
        yield Alert(
            "not_finite",
            step,
            "The loss or its gradient was not a finite number; that update was left out and the weights are unharmed. "
            "Lower optim.lr or optim.grad_clip if it comes back.",
            {metrics.SKIPPED_UPDATES: skipped},
        )


def unscored(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    share = dogs.history[-1].get("unscored", 0.0)
    failed = [rollout for rollout in _each(groups) if rollout.reward is None]
    if share > MOST_UNSCORED and not all(map(_is_too_long, failed)):
        yield Alert(
            "unscored",
            step,
            f"{share:.0%} of the rollouts got no reward and were left out. The most common reason: "
            f"{most_common_error(groups)}. "
            "Fix the environment or its judge.",
            {"share": share},
            _ids(failed),
        )


def most_common_error(groups: Groups) -> str:
    """Why rollouts without a reward have none, in bounded words: they may be the environment's own."""
    reasons = Counter(_why_unscored(rollout) for rollout in _each(groups) if rollout.reward is None)
    reason = reasons.most_common(1)[0][0].rstrip(".") if reasons else "a component was unscored"
    return reason if len(reason) <= REASON_CHARS else f"{reason[: REASON_CHARS - 1]}…"


def _why_unscored(rollout: Rollout) -> str:
    if error := rollout.error:
        return error.type if error.message == error.type else f"{error.type}: {error.message}"
    return next(iter(rollout.unscored.values()), "a component was unscored")


Alarm = Callable[[Watchdogs, int, Groups], Iterator[Alert]]
ALARMS: tuple[Alarm, ...] = (
    not_finite,
    reward_collapse,
    all_equal,
    entropy_collapse,
    entropy_blow_up,
    length_blow_up,
    all_cut_off,
    component_saturated,
    repetition,
    too_long,
    nothing_learned,
    no_signal,
    drift,
    not_moving,
    unscored,
)


def is_repetitive(tokens: Sequence[int], size: int = 4) -> bool:
    """Whether most of the `size`-grams of a longer text have been there before."""
    count = len(tokens) - size + 1
    if count < 16:
        return False
    return len({tuple(tokens[i : i + size]) for i in range(count)}) < 0.5 * count


def _each(groups: Groups) -> Iterator[Rollout]:
    return (rollout for group in groups for rollout in group)


def _ids(rollouts: Iterator[Rollout] | Sequence[Rollout]) -> list[str]:
    return [rollout.id for rollout, _ in zip(rollouts, range(4), strict=False)]


def _lowest(groups: Groups) -> list[str]:
    scored = [rollout for rollout in _each(groups) if rollout.reward is not None]
    return _ids(sorted(scored, key=lambda rollout: rollout.reward or 0.0))


def _longest(groups: Groups) -> list[str]:
    return _ids(sorted(_each(groups), key=lambda rollout: -len(_sampled(rollout))))


def _sampled(rollout: Rollout) -> list[int]:
    return [token for segment in rollout.tokens if segment.sampled for token in segment.ids]


def _smooth(values: Sequence[float]) -> list[float]:
    return [statistics.fmean(values[i - ENDS : i]) for i in range(ENDS, len(values) + 1)]


def _scale(dogs: Watchdogs) -> tuple[float, float]:
    """The lowest and the highest reward of any answer so far: rewards may lie anywhere."""
    low, high = _range(dogs.history)
    return 0.0 if low is None else low, 1.0 if high is None else high


def _spread(dogs: Watchdogs) -> float:
    """How far apart the rewards of one step were at most, as their standard deviation."""
    return max(dogs.series(metrics.REWARD_STD), default=0.0)


def _has_room(dogs: Watchdogs, reward: float) -> bool:
    """Whether answers earned clearly more than this mean. What was seen is the only scale: rewards may end anywhere."""
    return dogs.highest - reward > ROOM * _spread(dogs) > 0


def _top(dogs: Watchdogs, name: str) -> float:
    return max(0.0, dogs.tops.get(name, 0.0))


def _stuck(values: Sequence[float], scale: float) -> bool:
    """Whether they stay at hardly anything, as rewards of that scale go, and do not rise."""
    half = len(values) // 2
    rise = statistics.fmean(values[half:]) - statistics.fmean(values[:half])
    return max(values) <= 0.1 * scale and rise < 0.02 * scale
