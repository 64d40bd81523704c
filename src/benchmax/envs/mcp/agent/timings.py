"""How long things took, lately."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

KEPT = 2_000


class Times:
    """Durations in seconds: how many there were, and the spread of the latest."""

    __slots__ = ("_latest", "count")

    def __init__(self) -> None:
        self.count = 0
        self._latest: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        self.count += 1
        self._latest.append(seconds)

    def told(self) -> dict[str, float]:
        ordered = sorted(self._latest)
        if not ordered:
            return {"count": 0}
        last = len(ordered) - 1
        return {
            "count": self.count,
            "p50_ms": 1000 * ordered[last // 2],
            "p99_ms": 1000 * ordered[round(last * 0.99)],
            "max_ms": 1000 * ordered[-1],
        }


@dataclass(slots=True)
class Metrics:
    """What a machine's servers have been through."""

    waits: Times = field(default_factory=Times)
    starts: Times = field(default_factory=Times)
    resets: Times = field(default_factory=Times)
    calls: Times = field(default_factory=Times)
    failures: int = 0
    retries: int = 0
    crashes: int = 0
    start_failures: int = 0
    reaped: int = 0

    def told(self) -> dict[str, Any]:
        return {
            "wait": self.waits.told(), "start": self.starts.told(), "reset": self.resets.told(),
            "call": self.calls.told(), "failures": self.failures, "retries": self.retries, "crashes": self.crashes,
            "start_failures": self.start_failures, "reaped": self.reaped,
        }  # fmt: skip
