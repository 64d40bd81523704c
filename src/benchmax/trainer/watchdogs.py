"""Alarms for the ways a run goes wrong while its loss looks fine.

Each alarm looks at the metrics of the last steps and at the step's rollouts, and says what it saw, why it matters and
what to do. An alarm that rang is quiet for one window.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmax.rollouts.record import Rollout, Termination
from benchmax.trainer.config import WatchConfig

Groups = Sequence[Sequence[Rollout]]
Values = Mapping[str, float]

ENDS = 3
"""Steps averaged at either end of a window, against noise."""
FIRST_STEPS = 4
"""Steps without any signal, from the first on, after which it is said: nobody should wait longer for nothing."""
REASON_CHARS = 600
"""Of the environment's words in ours."""
PREFIX, SUFFIX = "reward_stats/", "/reward/mean"


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

    def look(self, step: int, values: Values, groups: Groups) -> list[Alert]:
        """Take in one step; gives the alarms it sets off."""
        self.history.append(dict(values))
        for rollout in _each(groups):
            for name, value in rollout.rewards.items():
                self.tops[name] = max(value, self.tops.get(name, value))
        alerts = []
        for alarm in ALARMS:
            for alert in alarm(self, step, groups):
                if step - self.rang.get(alert.kind, -(10**9)) >= self.config.window:
                    self.rang[alert.kind] = step
                    alerts.append(alert)
        return alerts

    def state(self) -> dict[str, Any]:
        return {"history": self.history, "rang": self.rang, "tops": self.tops}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.history, self.rang, self.tops = list(state["history"]), dict(state["rang"]), dict(state["tops"])

    def series(self, name: str) -> list[float]:
        """A metric over all steps that have it."""
        return [values[name] for values in self.history if name in values]

    def window(self, name: str) -> list[float]:
        return self.series(name)[-self.config.window :]


def reward_collapse(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    means = _smooth(dogs.series("reward/mean"))
    if len(means) < 2:
        return
    best, now = max(means), means[-1]
    if best - now > 0.1 and now < best - 0.5 * abs(best):
        yield Alert(
            "reward_collapse",
            step,
            f"The mean reward fell from {best:.2f} to {now:.2f}. Go back to the best checkpoint and lower optim.lr, "
            "or add algorithm.kl.",
            {"best": best, "now": now},
            _lowest(groups),
        )


def entropy_collapse(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    entropies = dogs.series("entropy")
    if len(entropies) < dogs.config.window:
        return
    first, now = statistics.fmean(entropies[:ENDS]), statistics.fmean(entropies[-ENDS:])
    solved = dogs.history[-1].get("solve_rate", 0.0)
    if now < 0.05 * first and solved < 0.8:
        yield Alert(
            "entropy_collapse",
            step,
            f"The model is nearly certain of every token (entropy {first:.3f} → {now:.3f}) but solves only "
            f"{solved:.0%}: it can no longer explore. Lower optim.lr, raise algorithm.clip_high or the temperature.",
            {"first": first, "now": now, "solve_rate": solved},
            _lowest(groups),
        )


def length_blow_up(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    lengths, rewards = dogs.series("response_tokens/mean"), dogs.series("reward/mean")
    if min(len(lengths), len(rewards)) < dogs.config.window:
        return
    first, now = statistics.fmean(lengths[:ENDS]), statistics.fmean(lengths[-ENDS:])
    gained = statistics.fmean(rewards[-ENDS:]) - statistics.fmean(rewards[:ENDS])
    if now > 2 * first and now - first > 8 and gained < 0.05:
        yield Alert(
            "length_blow_up",
            step,
            f"Answers grew from {first:.0f} to {now:.0f} tokens without more reward. Use algorithm.normalise = "
            "'constant' or a reward that asks for short answers.",
            {"first": first, "now": now, "reward_gain": gained},
            _longest(groups),
        )


def component_saturated(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """One easy component is paid in full while another never is: the model has found the cheap half of the reward."""
    names = [key[len(PREFIX) : -len(SUFFIX)] for key in dogs.history[-1] if key.startswith(PREFIX)]
    windows = {name: dogs.window(f"{PREFIX}{name}{SUFFIX}") for name in names}
    full = {name: values for name, values in windows.items() if len(values) >= dogs.config.window}
    paid = [name for name, values in full.items() if _top(dogs, name) and min(values) >= 0.9 * _top(dogs, name)]
    flat = [name for name, values in full.items() if name not in paid and _stuck(values, _top(dogs, name))]
    if paid and flat:
        stuck = [rollout for rollout in _each(groups) if all(rollout.rewards.get(name, 0) <= 0 for name in flat)]
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
    over = [rollout for rollout in rollouts if rollout.termination is Termination.CONTEXT_EXCEEDED]
    if rollouts and len(over) >= len(rollouts) / 2:
        share = len(over) / len(rollouts)
        yield Alert(
            "too_long",
            step,
            f"{share:.0%} of the rollouts did not fit the model's context, so nothing is learned from them. "
            "Shorten the prompts, or take a model with a longer context.",
            {"share": share},
            _ids(over),
        )


def nothing_learned(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    """Once, early: no group of any step had signal, so no update has happened yet."""
    history, rewards = dogs.history, dogs.series("reward/mean")
    if len(history) == FIRST_STEPS and rewards and not any(values.get("groups/used") for values in history):
        low, high = min(dogs.series("reward/min") or rewards), max(dogs.series("reward/max") or rewards)
        earned = f"all {low:g}" if low == high else f"from {low:g} to {high:g}"
        yield Alert(
            "nothing_learned",
            step,
            f"Nothing to learn from yet: in all {len(history)} steps the samples of each prompt got equal rewards "
            f"({earned}), so no update has happened. " + _more_signal(statistics.fmean(rewards)),
            {"steps": len(history), "lowest": low, "highest": high},
            _ids(_each(groups)),
        )


def no_signal(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    recent = dogs.history[-dogs.config.equal_steps :]
    if len(recent) == dogs.config.equal_steps and all(values.get("groups/used", 0) == 0 for values in recent):
        reward = recent[-1].get("reward/mean")
        yield Alert(
            "no_signal",
            step,
            f"For {len(recent)} steps the samples of each prompt got equal rewards, so nothing was learned. "
            + _more_signal(reward),
            {"steps": len(recent), "reward": reward},
            _ids(_each(groups)),
        )


def _more_signal(reward: float | None) -> str:
    """Advice in words that fit both the settings of `benchmax train` and the arguments of a launch."""
    if reward and reward > 0.9:
        return "All are solved: take harder rows."
    return (
        "Read the examples; then try more samples per prompt (group_size), a warm start on examples (supervised), the "
        "form shown in the prompt, or a reward that gives partial credit."
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
    rewards = dogs.series("reward/mean")
    if len(rewards) < 2 * dogs.config.window or not dogs.history[-1].get("groups/used"):
        return
    recent = rewards[-2 * dogs.config.window :]
    half = len(recent) // 2
    before, now = statistics.fmean(recent[:half]), statistics.fmean(recent[half:])
    top = dogs.history[-1].get("reward/max", 1.0)
    if abs(now - before) < 0.02 and now < 0.9 * top:
        lr = dogs.history[-1].get("lr", 0.0)
        yield Alert(
            "not_moving",
            step,
            f"The reward has not moved for {len(recent)} steps (at {now:.2f}). Try optim.lr {3 * lr:.1e} instead of "
            f"{lr:.1e}, or a larger rollouts.group_size.",
            {"before": before, "now": now, "lr": lr},
        )


def not_finite(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    skipped = dogs.history[-1].get("skipped_updates", 0.0)
    if skipped:
        yield Alert(
            "not_finite",
            step,
            "The loss or its gradient was not a finite number; that update was left out and the weights are unharmed. "
            "Lower optim.lr or optim.grad_clip if it comes back.",
            {"skipped_updates": skipped},
        )


def unscored(dogs: Watchdogs, step: int, groups: Groups) -> Iterator[Alert]:
    share = dogs.history[-1].get("unscored", 0.0)
    if share > 0.25:
        failed = [rollout for rollout in _each(groups) if rollout.reward is None]
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
    if rollout.error:
        return rollout.error.message
    return next(iter(rollout.unscored.values()), "a component was unscored")


Alarm = Callable[[Watchdogs, int, Groups], Iterator[Alert]]
ALARMS: tuple[Alarm, ...] = (
    not_finite,
    reward_collapse,
    entropy_collapse,
    length_blow_up,
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


def _top(dogs: Watchdogs, name: str) -> float:
    return max(0.0, dogs.tops.get(name, 0.0))


def _stuck(values: Sequence[float], top: float) -> bool:
    return max(values) - min(values) < 0.02 and max(values) <= 0.1 * max(top, 1e-9) + 0.02
