"""Rollouts of a run: lists, search, averages, and one in full."""

from __future__ import annotations

from typing import Any

from benchmax.platform.wire.base import Wire


class RewardAtStep(Wire):
    step: int
    mean_reward: float | None


class RolloutGroup(Wire):
    prompt_message_id: str
    prompt_text: str
    reward_history: list[RewardAtStep]


class RolloutSummary(Wire):
    data: list[RolloutGroup]
    page: int
    limit: int
    total: int


class HeatCell(Wire):
    id: str
    step: int
    total_reward: float | None
    sample: int


class NamedReward(Wire):
    name: str
    value: float


class TokenRun(Wire):
    """Tokens in a row that were all sampled by the model, or all given to it."""

    sampled: bool
    ids: list[int]
    texts: list[str] | None = None
    """What each token reads; None when the run did not save its vocabulary."""
    logprobs: list[float] | None = None


class RolloutFacts(Wire):
    """What is known of a rollout without its record."""

    id: str
    step: int
    mode: str
    prompt_message_id: str
    sample: int
    total_reward: float | None
    termination: str
    advantage: float | None
    discarded: str | None
    turns: int
    tokens: int


class RolloutDetails(RolloutFacts):
    prompt_messages: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    """The turns after the prompt."""
    rewards: list[NamedReward]
    unscored: dict[str, str]
    task: dict[str, Any] | None
    error: dict[str, Any] | None
    tool_events: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    seconds: dict[str, float]
    complete: bool
    """False when the record's file is gone and only the index is left."""
    token_runs: list[TokenRun] | None = None
    """The exact tokens of the conversation; None when the run did not save them (`output.save_tokens`)."""


class RolloutItem(RolloutFacts):
    prompt_text: str
    rewards: dict[str, float]
    error_type: str | None
    ok: bool
    tools: list[str]


class RolloutList(Wire):
    data: list[RolloutItem]
    page: int
    limit: int


class ModeAverage(Wire):
    avg: float | None
    count: int
    scored: int
    latest_step: int | None
    latest_avg: float | None


class StepOutline(Wire):
    """The rollouts of one step, in numbers."""

    step: int
    rollouts: int
    groups: int
    """Examples among them."""
    mean_reward: float | None
    lowest: float | None
    highest: float | None
    failed: int
    discarded: int
    most_tokens: int


class RolloutOutline(Wire):
    steps: list[StepOutline]
    tools: list[str]
    """Called anywhere in this mode."""
    terminations: list[str]


class FoundRollout(Wire):
    rollout: RolloutItem
    words: str
    """Around the text that was looked for."""


class FoundRollouts(Wire):
    found: list[FoundRollout]
    searched: int
    total: int
    """More than `searched` when time ran out or enough was found."""
