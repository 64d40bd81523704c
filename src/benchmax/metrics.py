"""Every number a run measures, in one table: its name in files and in the API, its title and its meaning.

The trainer writes these names, the platform indexes them, the console and the documents show them; the console's
TypeScript (`console/src/chart/metrics.generated.ts`) and the table in `docs/training.md` are generated from this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Section = Literal["main", "rewards", "rollouts", "updates", "speed"]
Better = Literal["up", "down", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured number over the steps of a run."""

    key: str
    title: str
    section: Section
    """Where the console shows it."""
    about: str
    unit: str = ""
    better: Better = ""
    lowest: float | None = None
    highest: float | None = None


TABLE: list[Metric] = []
"""In the order in which they are shown."""


def _add(metric: Metric) -> str:
    """Add a metric to the table; returns its key."""
    TABLE.append(metric)
    return metric.key


def _share(key: str, title: str, section: Section, about: str, better: Better = "") -> str:
    return _add(Metric(key, title, section, about, "share", better, 0.0, 1.0))


def _count(key: str, title: str, section: Section, about: str, unit: str = "") -> str:
    return _add(Metric(key, title, section, about, unit, lowest=0.0))


REWARD = _add(
    Metric("reward/mean", "Reward", "main", "Mean reward of all scored rollouts of the step.", "", "up", 0.0, 1.0)
)
SOLVE_RATE = _share(
    "solve_rate",
    "Solved",
    "main",
    "Share of rollouts that solved their task: the primary component, or the total where none is named, is 1.",
    "up",
)
MAX_AT_K = _add(
    Metric(
        "max@k", "Max@k", "main", "Best reward of each prompt's rollouts, averaged over prompts.", "", "up", 0.0, 1.0
    )
)
RESPONSE_TOKENS = _count(
    "response_tokens/mean", "Response length", "main", "Mean number of tokens the model wrote in a rollout.", "tokens"
)
PASS_AT_K = _share(
    "pass@k",
    "Pass@k",
    "rewards",
    "Share of prompts that at least one rollout solved. It usually rises before the mean reward does.",
    "up",
)
REWARD_STD = _count(
    "reward/std", "Spread of rewards", "rewards", "Standard deviation of rewards. At 0 there is nothing to learn from."
)
REWARD_MIN = _add(Metric("reward/min", "Lowest reward", "rewards", "Lowest reward of the step.", better="up"))
REWARD_MAX = _add(Metric("reward/max", "Highest reward", "rewards", "Highest reward of the step.", better="up"))
ROLLOUTS = _count("rollouts", "Rollouts", "rollouts", "Rollouts in the step.")
UNSCORED = _share(
    "unscored",
    "Unscored",
    "rollouts",
    "Share of rollouts whose reward could not be computed; they are left out, not counted as 0.",
    "down",
)
TRUNCATED = _share("truncated", "Cut off", "rollouts", "Share of rollouts that reached the token limit.", "down")
FAILED = _share("failed", "Failed", "rollouts", "Share of rollouts that ended with an error.", "down")
TURNS = _count("turns/mean", "Turns", "rollouts", "Mean number of turns of a rollout.")
LONGEST_RESPONSE = _count(
    "response_tokens/max", "Longest response", "rollouts", "Tokens of the longest rollout.", "tokens"
)
GROUPS = _count("groups", "Groups", "rollouts", "Prompts sampled in the step.")
GROUPS_USED = _count(
    "groups/used",
    "Groups with signal",
    "rollouts",
    "Prompts whose rollouts differ in reward: only these teach something.",
)
GROUPS_GUIDED = _count(
    "groups/guided",
    "Groups shown a solution",
    "rollouts",
    "Prompts without signal whose known solution was learned from instead.",
)
GROUPS_SKIPPED = _count(
    "skipped_groups", "Groups without signal", "rollouts", "Prompts whose rollouts all have the same reward."
)
LOSS = _add(Metric("loss", "Loss", "updates", "Policy loss. Its size says little; watch the reward."))
GRAD_NORM = _count("grad_norm", "Gradient norm", "updates", "Length of the gradient before clipping.")
ENTROPY = _count(
    "entropy",
    "Entropy",
    "updates",
    "How undecided the model is about its next token. A fall to 0 means it stopped exploring.",
)
KL = _count("kl", "KL to the base model", "updates", "How far the model has moved from where it started.")
MOVED = _count("moved", "Moved in an update", "updates", "How far the step's updates moved the model: KL per rollout.")
LEARNING_RATE = _count("lr", "Learning rate", "updates", "Step size of the optimiser.")
RATIO = _add(
    Metric(
        "ratio", "Probability ratio", "updates", "New over old probability of the sampled tokens; 1 means unchanged."
    )
)
CLIP_FRACTION = _share("clip_fraction", "Clipped tokens", "updates", "Share of tokens whose ratio was clipped.")
DRIFT = _count(
    "drift",
    "Sampler drift",
    "updates",
    "Difference between the sampler's and trainer's log-probabilities of the same tokens.",
)
LOSS_TOKENS = _count("tokens/loss", "Tokens trained on", "updates", "Tokens that count in the loss.", "tokens")
PACKED_TOKENS = _count(
    "tokens/packed", "Tokens computed", "updates", "Tokens sent through the model after packing.", "tokens"
)
SKIPPED_UPDATES = _count(
    "skipped_updates", "Skipped updates", "updates", "Updates skipped because they were not finite."
)
SAMPLE_SECONDS = _count("seconds/sample", "Sampling time", "speed", "Seconds spent on the step's rollouts.", "s")
UPDATE_SECONDS = _count("seconds/update", "Update time", "speed", "Seconds spent on the step's updates.", "s")
TOKENS_PER_SECOND = _count(
    "tokens_per_second", "Tokens per second", "speed", "Sampled tokens divided by the step's time."
)
PART_METRICS = (REWARD, SOLVE_RATE, PASS_AT_K, MAX_AT_K, RESPONSE_TOKENS, TURNS, ROLLOUTS, UNSCORED, TRUNCATED, FAILED)
"""Those also recorded for each part of a composed environment (`of_part`)."""

FULL_REWARD = 1.0
FULL_WITHIN = 1e-6
"""How much a full reward may fall short: a judge's score, or a mean of components, is seldom exact."""
EQUAL_WITHIN = 1e-9
"""Rewards closer than this are equal: they differ by rounding."""


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
    return reward is not None and is_full(reward, full)


def is_full(reward: float, full: float = FULL_REWARD) -> bool:
    """Whether a reward is the full one."""
    return reward >= full - FULL_WITHIN


def pays_more(reward: float, other: float) -> bool:
    """Whether a reward is higher than another one."""
    return reward > other + EQUAL_WITHIN


def component(name: str) -> str:
    """The mean of one reward component."""
    return f"reward_stats/{name}/reward/mean"


def of_part(part: str, key: str) -> str:
    """The same number for the rollouts of one part of a composed environment."""
    return f"env/{part}/{key}"


def part_rewards(values: Mapping[str, float]) -> dict[str, float]:
    """The mean reward of each part of a composed environment."""
    found = ((re.fullmatch(of_part("(.+)", REWARD), key), value) for key, value in values.items())
    return {match[1]: value for match, value in found if match}
