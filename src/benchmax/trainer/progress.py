"""How far a run has got, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmax.metrics import is_full

SOLVED_EVALUATIONS = 2
"""Evaluations in a row that must earn what known solutions earn."""
STUCK_EVALUATIONS = 2
"""Evaluations without a better one, after which the run does something about it."""


@dataclass(slots=True)
class Progress:
    """What the loop remembers besides weights; a checkpoint keeps it under these names."""

    step: int = 0
    """Steps done."""
    evaluated: int = -1
    """Steps done at the last evaluation."""
    last: float | None = None
    """Mean held-out reward of the last evaluation."""
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    """Evaluations since the best."""
    idle: int = 0
    """Evaluations since the best, or since something was done about it."""
    seconds: float = 0.0
    """Training time of earlier processes."""
    gold: float | None = None
    """The mean reward of known solutions."""
    solved: int = 0
    """Evaluations in a row that earned as much."""
    mends: int = 0
    """Times the run went back to an earlier checkpoint after a collapse."""
    lessons: int = 0
    """Times the run was shown solutions because it got no further."""

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Progress:
        """Read a checkpoint's; runs of earlier versions have fewer fields."""
        return cls(**{name: value for name, value in state.items() if name in cls.__slots__})

    @property
    def at_best(self) -> bool:
        """Whether the current weights are those of the best evaluation."""
        return self.best is not None and self.evaluated == self.step == self.best_step

    @property
    def is_stuck(self) -> bool:
        """Whether the latest evaluations got no better."""
        return self.idle >= STUCK_EVALUATIONS and self.evaluated == self.step

    @property
    def all_solved(self) -> bool:
        """Whether held-out rows have earned what known solutions earn, several times in a row."""
        return self.step > 0 and self.solved >= SOLVED_EVALUATIONS

    def observe_evaluation(self, reward: float | None, highest: float = -math.inf) -> None:
        """Take in an evaluation, None when too little of it was scored to count, and the highest reward of any answer
        so far: known solutions may not be the best ones."""
        self.evaluated, self.last = self.step, reward
        if reward is None:
            return
        full = None if self.gold is None else max(self.gold, highest)
        self.solved = self.solved + 1 if full is not None and is_full(reward, full) else 0
        better = self.best is None or reward > self.best
        self.stale = 0 if better else self.stale + 1
        self.idle = 0 if better else self.idle + 1
        if better or reward == self.best:  # of equal ones the latest counts: it trained longest
            self.best, self.best_step = reward, self.step

    def begin_at(self, reward: float | None) -> None:
        """Take in the evaluation after a warm start, which is where training begins."""
        self.last = reward
        if reward is not None:
            self.best, self.best_step, self.stale, self.idle = reward, 0, 0, 0


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    path: Path
    reason: str
    """`steps`, `solved`, `target`, `patience`, `time`, `collapsed` or `interrupted`."""
    step: int
    first_eval: dict[str, float] = field(default_factory=dict)
    """The evaluation of the model before any training."""
    last_eval: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    learned: bool = True
    """Whether any group of any step had signal, or solutions were shown in its place."""
    best: float | None = None
    """The best mean held-out reward."""
    best_step: int = 0
    message: str = ""
    """Why it ended, where the reason alone does not say."""
