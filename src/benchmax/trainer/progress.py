"""How far a run has got, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOLVED_BY = 1e-6
"""How close to what known solutions earn an evaluation counts as solved."""
SOLVED_TWICE = 2
STUCK = 2
"""Evaluations without a better one, after which something is done about it."""


@dataclass(slots=True)
class Progress:
    """What the loop has to remember besides weights."""

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
    """The same, since something was done about it."""
    seconds: float = 0.0
    """Training time of earlier processes."""
    gold: float | None = None
    """What known solutions earn."""
    solved: int = 0
    """Evaluations in a row that earned as much."""
    mends: int = 0
    """Times the run went back to an earlier checkpoint."""
    lessons: int = 0
    """Times the run stopped to be taught because it got no further."""

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Progress:
        """What a checkpoint holds; runs of before have fewer fields."""
        return cls(**{name: value for name, value in state.items() if name in cls.__slots__})

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def at_best(self) -> bool:
        """Whether the weights of now are those of the best evaluation."""
        return self.best is not None and self.evaluated == self.step == self.best_step

    @property
    def is_stuck(self) -> bool:
        """Whether the evaluation just made is one too many without a better one."""
        return self.idle >= STUCK and self.evaluated == self.step

    @property
    def all_solved(self) -> bool:
        """Whether held-out rows have earned all there is, twice in a row."""
        return self.step > 0 and self.solved >= SOLVED_TWICE

    def saw(self, reward: float | None, most: float = -math.inf) -> None:
        """Take in an evaluation, None when too little of it was scored to count, and the most that any answer earned
        so far: known solutions may not be the best ones."""
        self.evaluated, self.last = self.step, reward
        if reward is None:
            return
        all_there_is = None if self.gold is None else max(self.gold, most)
        self.solved = self.solved + 1 if all_there_is is not None and reward >= all_there_is - SOLVED_BY else 0
        better = self.best is None or reward > self.best
        self.stale = 0 if better else self.stale + 1
        self.idle = 0 if better else self.idle + 1
        if better or reward == self.best:  # of equals the latest, which trained longest
            self.best, self.best_step = reward, self.step

    def begin_at(self, reward: float | None) -> None:
        """Take in what a warm start left behind: that is where training begins."""
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
    """The model as it came."""
    last_eval: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    learned: bool = True
    """Whether any group of any step had signal, or solutions were shown."""
    best: float | None = None
    """The best mean held-out reward."""
    best_step: int = 0
    message: str = ""
    """Why it ended, where the reason alone does not tell."""
