"""Every number a run measures, in one table: its name in files and in the API, its title and its meaning.

The trainer writes these names, the platform indexes them, the console and the documents show them; the console's
TypeScript (`console/src/chart/metrics.generated.ts`) and the table in `docs/training.md` are generated from this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Section = Literal["main", "rewards", "rollouts", "updates", "speed"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured number over the steps of a run."""

    key: str
    title: str
    section: Section
    """Where the console shows it."""
    about: str
    unit: str = ""
    better: Literal["up", "down", ""] = ""
    lowest: float | None = None
    highest: float | None = None


REWARD = "reward/mean"
REWARD_STD = "reward/std"
REWARD_MIN = "reward/min"
REWARD_MAX = "reward/max"
SOLVE_RATE = "solve_rate"
PASS_AT_K = "pass@k"
MAX_AT_K = "max@k"
RESPONSE_TOKENS = "response_tokens/mean"
LONGEST_RESPONSE = "response_tokens/max"
ROLLOUTS = "rollouts"
UNSCORED = "unscored"
TRUNCATED = "truncated"
FAILED = "failed"
TURNS = "turns/mean"
GROUPS = "groups"
GROUPS_USED = "groups/used"
GROUPS_GUIDED = "groups/guided"
GROUPS_SKIPPED = "skipped_groups"
LOSS = "loss"
GRAD_NORM = "grad_norm"
ENTROPY = "entropy"
KL = "kl"
MOVED = "moved"
LEARNING_RATE = "lr"
RATIO = "ratio"
CLIP_FRACTION = "clip_fraction"
DRIFT = "drift"
LOSS_TOKENS = "tokens/loss"
PACKED_TOKENS = "tokens/packed"
SKIPPED_UPDATES = "skipped_updates"
SAMPLE_SECONDS = "seconds/sample"
UPDATE_SECONDS = "seconds/update"
TOKENS_PER_SECOND = "tokens_per_second"

FULL_REWARD = 1.0
EQUAL_REWARDS = 1e-6
"""Rewards closer than this count as equal when a rollout is judged solved."""


Primary = str | Mapping[str, str | None] | None
"""The component that says whether a task is solved; of a composed environment, that of each part."""


class Scored(Protocol):
    """What a rollout earned: in all, and by component."""

    @property
    def env(self) -> str: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def rewards(self) -> Mapping[str, float]: ...


def task_reward(rollout: Scored, primary: Primary = None) -> float | None:
    """How well the task was done: the component that the environment names as primary, else the total."""
    if isinstance(primary, Mapping):
        primary = primary.get(rollout.env)
    return rollout.rewards.get(primary) if primary else rollout.reward


def solved(rollout: Scored, primary: Primary = None, full: float = FULL_REWARD) -> bool:
    """Whether a rollout solved its task: it earned the full task reward. The only definition: `solve_rate` and
    `pass@k` of training and evaluation, and the curriculum, count with it."""
    reward = task_reward(rollout, primary)
    return reward is not None and reward >= full - EQUAL_REWARDS


def component(name: str) -> str:
    """The mean of one reward component."""
    return f"reward_stats/{name}/reward/mean"


def of_part(part: str, key: str) -> str:
    """The same number for the rollouts of one part of a composed environment."""
    return f"env/{part}/{key}"


def part_rewards(values: Mapping[str, float]) -> dict[str, float]:
    """The mean reward of each part of a composed environment."""
    found = {}
    for key, value in values.items():
        before, slash, rest = key.partition("/")
        part = rest.removesuffix(f"/{REWARD}")
        if before == "env" and slash and part != rest:
            found[part] = value
    return found


def _share(key: str, title: str, section: Section, about: str, better: Literal["up", "down", ""] = "") -> Metric:
    return Metric(key, title, section, about, "share", better, 0.0, 1.0)


def _count(key: str, title: str, section: Section, about: str, unit: str = "") -> Metric:
    return Metric(key, title, section, about, unit, lowest=0.0)


TABLE = (
    Metric(REWARD, "Reward", "main", "Mean reward of all scored rollouts of the step.", "", "up", 0.0, 1.0),
    _share(
        SOLVE_RATE,
        "Solved",
        "main",
        "Share of rollouts that solved their task: the primary component, or the total where none is named, is 1.",
        "up",
    ),
    Metric(
        MAX_AT_K, "Max@k", "main", "Best reward of each prompt's rollouts, averaged over prompts.", "", "up", 0.0, 1.0
    ),
    _count(RESPONSE_TOKENS, "Response length", "main", "Mean number of tokens the model wrote in a rollout.", "tokens"),
    _share(
        PASS_AT_K,
        "Pass@k",
        "rewards",
        "Share of prompts that at least one rollout solved. It usually rises before the mean reward does.",
        "up",
    ),
    _count(
        REWARD_STD,
        "Spread of rewards",
        "rewards",
        "Standard deviation of rewards. At 0 there is nothing to learn from.",
    ),
    Metric(REWARD_MIN, "Lowest reward", "rewards", "Lowest reward of the step.", better="up"),
    Metric(REWARD_MAX, "Highest reward", "rewards", "Highest reward of the step.", better="up"),
    _count(ROLLOUTS, "Rollouts", "rollouts", "Rollouts in the step."),
    _share(
        UNSCORED,
        "Unscored",
        "rollouts",
        "Share of rollouts whose reward could not be computed; they are left out, not counted as 0.",
        "down",
    ),
    _share(TRUNCATED, "Cut off", "rollouts", "Share of rollouts that reached the token limit.", "down"),
    _share(FAILED, "Failed", "rollouts", "Share of rollouts that ended with an error.", "down"),
    _count(TURNS, "Turns", "rollouts", "Mean number of turns of a rollout."),
    _count(LONGEST_RESPONSE, "Longest response", "rollouts", "Tokens of the longest rollout.", "tokens"),
    _count(GROUPS, "Groups", "rollouts", "Prompts sampled in the step."),
    _count(
        GROUPS_USED,
        "Groups with signal",
        "rollouts",
        "Prompts whose rollouts differ in reward: only those teach something.",
    ),
    _count(
        GROUPS_GUIDED,
        "Groups shown a solution",
        "rollouts",
        "Prompts without signal whose known solution was learned from instead.",
    ),
    _count(GROUPS_SKIPPED, "Groups without signal", "rollouts", "Prompts whose rollouts all have the same reward."),
    Metric(LOSS, "Loss", "updates", "Policy loss. Its size says little; watch the reward."),
    _count(GRAD_NORM, "Gradient norm", "updates", "Length of the gradient before clipping."),
    _count(
        ENTROPY,
        "Entropy",
        "updates",
        "How undecided the model is about its next token. A fall to 0 means it stopped exploring.",
    ),
    _count(KL, "KL to the base model", "updates", "How far the model has moved from where it began."),
    _count(MOVED, "Moved in an update", "updates", "How far the updates of the step moved the model: KL, per rollout."),
    _count(LEARNING_RATE, "Learning rate", "updates", "Step size of the optimiser."),
    Metric(RATIO, "Probability ratio", "updates", "New against old probability of the sampled tokens; 1 is unchanged."),
    _share(CLIP_FRACTION, "Clipped tokens", "updates", "Share of tokens whose ratio was clipped."),
    _count(
        DRIFT,
        "Sampler drift",
        "updates",
        "Difference of sampler's and trainer's log-probabilities for the same tokens.",
    ),
    _count(LOSS_TOKENS, "Tokens trained on", "updates", "Tokens that count in the loss.", "tokens"),
    _count(PACKED_TOKENS, "Tokens computed", "updates", "Tokens sent through the model after packing.", "tokens"),
    _count(SKIPPED_UPDATES, "Skipped updates", "updates", "Updates left out because they were not finite."),
    _count(SAMPLE_SECONDS, "Sampling time", "speed", "Seconds to make the step's rollouts.", "s"),
    _count(UPDATE_SECONDS, "Update time", "speed", "Seconds to learn from them.", "s"),
    _count(TOKENS_PER_SECOND, "Tokens per second", "speed", "Sampled tokens by the step's time."),
)
METRICS = {metric.key: metric for metric in TABLE}
PART_METRICS = (REWARD, SOLVE_RATE, PASS_AT_K, MAX_AT_K, RESPONSE_TOKENS, TURNS, ROLLOUTS, UNSCORED, TRUNCATED, FAILED)
"""Those that are recorded for each part of a composed environment as well (`of_part`)."""
