"""Can *this* model learn from *this* environment? Measured on its first samples, before anything is trained.

GRPO learns from differences between the answers to one prompt, and can reach no more than what some answer earned.
So the questions are: do siblings differ, how much does the best of them earn, and is that more than a lazy strategy?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from benchmax.doctor.gold.answer_formats import Form
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.metrics import is_full, pays_more
from benchmax.rollouts.record import Rollout

LEAST_SPREAD = 0.1
"""Share of groups that must contain a difference, for learning to start."""
LEAST_REACH = 0.5
"""Share of what good answers earn that some answer must reach."""
LEAST_CHANCE = 1e-3
"""Probability of a good answer from which on training finds one by itself, sooner or later."""
SOLVED_SHARE = 0.95
"""Share of what good answers earn, from which on there is little left to learn."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the environment besides the samples."""

    gold: float | None = None
    """What good answers earn; None when none is known."""
    floor: float = 0.0
    """What nonsense earns."""
    form: Form | None = None
    """The form that earns."""
    lazy: Mapping[str, float] = field(default_factory=dict)
    """What strategies without understanding earn, by their names."""
    chance: float | None = None
    """The probability with which the model writes a known good answer, on average; None when it was not computed."""


@dataclass(slots=True)
class Signal:
    """What the samples show, and what follows from it."""

    groups: int
    samples: int
    """In each group."""
    reward: float | None = None
    """The mean."""
    best: float | None = None
    """The mean of each group's best."""
    most: float | None = None
    """The best of all."""
    pass_at_k: float = 0.0
    """Share of groups in which an answer earned all there is."""
    spread: float = 0.0
    """Share of groups whose answers differ in reward."""
    unscored: float = 0.0
    cut_off: float = 0.0
    in_form: float | None = None
    """Share of answers in the form that earns; None where it cannot be recognised."""
    first_calls: float | None = None
    """Share of rollouts whose first tool call worked; None without tools."""
    gold: float | None = None
    floor: float = 0.0
    chance: float | None = None
    """The probability of a known good answer, which the samples may have missed."""
    lazy: dict[str, float] = field(default_factory=dict)
    ready: bool = False
    """Whether the model needs no help: its samples have enough signal to learn from, or solve it already."""
    learns: bool = False
    """Whether training is expected to get somewhere without help."""
    forecast: str = ""
    advice: str = ""
    parts: dict[str, Signal] = field(default_factory=dict)
    """The same for each part of a composed environment."""

    @property
    def unready(self) -> set[str]:
        """The parts that need help; the environment as a whole, which has no name, where it has no parts."""
        return {name for name, each in (self.parts or {"": self}).items() if not each.ready}

    @property
    def laziest(self) -> tuple[str, float] | None:
        """The best paid strategy without understanding."""
        return max(self.lazy.items(), key=lambda each: each[1], default=None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def take_words(self) -> None:
        """Take forecast and advice over from the parts."""
        self.forecast = " ".join(f"{name}: {each.forecast}" for name, each in self.parts.items())
        self.advice = " ".join(f"{name}: {each.advice}" for name, each in self.parts.items() if each.advice)

    def lines(self) -> list[str]:
        """The numbers, a line each, then the forecast and what to do."""
        siblings = self.samples > 1
        shown = [f"{self.groups} prompts × {self.samples} sample{'s' * siblings}"]
        if self.reward is not None and self.best is not None:
            best = f", {self.best:.2f} for the best of a group" if siblings else ""
            good = f"; a good answer earns {self.gold:.2f}" if self.gold is not None else ""
            shown.append(f"reward {self.reward:.2f} on average{best}{good}")
        differ = f"groups with a difference {self.spread:.0%}, groups with a solution" if siblings else "solved"
        shown.append(f"{differ} {self.pass_at_k:.0%}")
        details = [f"cut off {self.cut_off:.0%}"]
        if self.in_form is not None:
            details.append(f"in the form that is paid {self.in_form:.0%}")
        if self.first_calls is not None:
            details.append(f"first tool call works {self.first_calls:.0%}")
        if self.unscored:
            details.append(f"unscored {self.unscored:.0%}")
        shown.append(", ".join(details))
        if self.laziest is not None:
            shown.append(f"without understanding: {self.laziest[0]} earns {self.laziest[1]:.2f}")
        return [*shown, self.forecast, *([self.advice] if self.advice else [])]


def measure(groups: Sequence[Sequence[Rollout]], known: Known = Known(), *, tools: bool = False) -> Signal:
    """What groups of siblings show."""
    rollouts = [rollout for group in groups for rollout in group]
    scored = [[rollout.reward for rollout in group if rollout.reward is not None] for group in groups]
    scored = [rewards for rewards in scored if rewards]
    signal = Signal(len(groups), max(map(len, groups), default=0), gold=known.gold, floor=known.floor)
    signal.chance, signal.lazy = known.chance, dict(known.lazy)
    if rollouts:
        signal.unscored = fmean(rollout.reward is None for rollout in rollouts)
        signal.cut_off = fmean(rollout.cut_off for rollout in rollouts)
        signal.in_form = _in_form(rollouts, known.form)
        first_calls = (bool(each.tool_events) and each.tool_events[0].ok for each in rollouts)
        signal.first_calls = fmean(first_calls) if tools else None
    if scored:
        most = max([known.gold or 0.0, *(reward for rewards in scored for reward in rewards)])
        signal.reward = fmean(reward for rewards in scored for reward in rewards)
        signal.best = fmean(map(max, scored))
        signal.most = max(map(max, scored))
        signal.spread = fmean(pays_more(max(rewards), min(rewards)) for rewards in scored)
        signal.pass_at_k = fmean(most > known.floor and is_full(max(rewards), most) for rewards in scored)
    _forecast(signal)
    return signal


def together(parts: Mapping[str, Signal]) -> Signal:
    """What the parts of a composed environment show as a whole: it is ready when each of them is."""
    groups = sum(each.groups for each in parts.values())
    whole = Signal(groups, max((each.samples for each in parts.values()), default=0), parts=dict(parts))
    for name in ("reward", "best", "gold", "chance"):
        setattr(whole, name, _weighted(parts.values(), name))
    for name in ("floor", "pass_at_k", "spread", "unscored", "cut_off"):
        setattr(whole, name, _weighted(parts.values(), name) or 0.0)
    whole.most = max((each.most for each in parts.values() if each.most is not None), default=None)
    whole.ready, whole.learns = all(e.ready for e in parts.values()), all(e.learns or e.ready for e in parts.values())
    whole.take_words()
    return whole


def _weighted(parts: Iterable[Signal], name: str) -> float | None:
    """The mean over groups of a number that some parts may lack."""
    known = [(each.groups, value) for each in parts if (value := getattr(each, name)) is not None and each.groups]
    return sum(count * value for count, value in known) / sum(count for count, _ in known) if known else None


def _forecast(signal: Signal) -> None:
    if signal.reward is None or signal.best is None:
        signal.forecast = "No sample got a reward: nothing can be learned."
        signal.advice = "Put the reward or its judge right; benchmax validate says what fails."
        return
    best = signal.best if signal.most is None else signal.most
    most = max(signal.gold or 0.0, signal.best)
    scale = (most - signal.floor) or 1.0
    reach, now = (best - signal.floor) / scale, (signal.reward - signal.floor) / scale
    share = f"{signal.spread:.0%} of {signal.groups} groups had signal"
    if now >= SOLVED_SHARE and signal.gold is not None:
        signal.ready = True
        signal.forecast = f"The model solves it already: its samples earn {signal.reward:.2f} of {most:.2f}."
        signal.advice = "Take harder rows; there is little left to learn here."
    elif signal.samples < 2:
        signal.forecast = "One sample a prompt does not show whether it can learn: answers to one prompt must differ."
        signal.advice = "--group-size 8 measures it."
    elif signal.spread < LEAST_SPREAD and (signal.chance or 0.0) >= LEAST_CHANCE:
        signal.learns = True
        few = f"Only {share}" if signal.spread else f"None of {signal.groups} groups had signal"
        one_in = f"1 answer in {1 / (signal.chance or 1):,.0f}"
        signal.forecast = f"{few}, but {one_in} is a known good one: GRPO would find it, slowly."
        signal.advice = "A warm start is quicker: warm_start = auto shows it solutions first."
    elif signal.spread < LEAST_SPREAD:
        none = f"No group in {signal.groups} had signal: GRPO will not move it."
        signal.forecast = f"Only {share}: GRPO would move it slowly, if at all." if signal.spread else none
        signal.advice = _help(signal)
    elif signal.gold is not None and reach < LEAST_REACH:
        signal.forecast = (
            f"The best sample earns {best:.2f} where a good answer earns {signal.gold:.2f}: GRPO would learn "
            "the cheap part and stop there."
        )
        signal.advice = _help(signal)
    else:
        signal.ready = signal.learns = True
        signal.forecast = f"{share}: it will learn."
        if lazy := _tempting(signal):
            signal.forecast = f"{share}: it will learn, first to earn the {lazy[1]:.2f} that {lazy[0]} pays."
            signal.advice = "If it stays there, reward that less."


def _tempting(signal: Signal) -> tuple[str, float] | None:
    """The lazy strategy that earns a good part of the gold reward, and more than the samples do."""
    if signal.laziest is None or signal.gold is None or signal.reward is None:
        return None
    paid = signal.laziest[1]
    tempts = paid > signal.reward and paid - signal.floor >= 0.25 * (signal.gold - signal.floor)
    return signal.laziest if tempts else None


def _help(signal: Signal) -> str:
    """What to do."""
    if signal.gold is not None:
        return "Show it solutions first: warm_start = auto does, with those the doctor found."
    if signal.cut_off > 0.5:
        return "More than half of the answers are cut off: raise rollouts.max_new_tokens, or ask for short answers."
    return "Show it solutions first: write gold_completion or demonstrate, or give chats with warm_start = FILE."


def _in_form(rollouts: Sequence[Rollout], form: Form | None) -> float | None:
    held = [form.holds(extract_completion_text(rollout.messages)) for rollout in rollouts] if form else []
    return None if not held or None in held else fmean(bool(each) for each in held)
