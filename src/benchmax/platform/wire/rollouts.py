"""The wire, fifth part: what a viewer of rollouts asks before it shows any."""

from __future__ import annotations

from benchmax.platform.wire.runs import RolloutItem, Wire


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
