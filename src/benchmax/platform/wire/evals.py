"""Evaluations of a run's models, and comparisons of two models on the same rows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from benchmax.platform.wire.base import PlainText, Time, Wire
from benchmax.platform.wire.values import RunStatus


class ComparedRollout(Wire):
    id: str
    step: int
    total_reward: float | None


class ComparedGroup(Wire):
    prompt_message_id: str
    prompt_text: str
    mean_reward: float | None
    rollouts: list[ComparedRollout]
    components: dict[str, float] = {}
    """The mean of each reward component."""


class Comparison(Wire):
    model_groups: list[ComparedGroup]
    comp_groups: list[ComparedGroup]
    page: int
    limit: int
    total: int


class EvalRequest(Wire):
    model: str = Field(max_length=200, pattern=r"^(base|checkpoint:[\w.-]+|endpoint:[\w-]+)$")
    name: PlainText = Field(default="", max_length=200)
    rows: int | None = Field(default=None, ge=1, le=10_000)
    samples: int = Field(default=1, ge=1, le=64)


class EvalInfo(Wire):
    id: str
    name: str
    model: str
    status: RunStatus
    status_reason: str
    done: int
    total: int
    summary: dict[str, Any]
    created_at: Time
    ended_at: Time | None


class EvalList(Wire):
    evals: list[EvalInfo]


class ComparedComponent(Wire):
    name: str
    ours: float
    other: float
    delta: float
    ci_low: float | None
    """None with a single example, which has no spread."""
    ci_high: float | None
    n: int
    label: Literal["outperformed", "comparison leads", "closing in", "no clear difference"]


class ComparisonSummary(Wire):
    n: int
    """Examples that both have a score for."""
    components: list[ComparedComponent]
    """The whole reward first, under the name `reward`; then each component that every rollout has."""
