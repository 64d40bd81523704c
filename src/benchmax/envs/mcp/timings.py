"""How long recent operations took, and how often they failed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

KEPT = 2_000


class Durations:
    """Durations in seconds: their number, and percentiles of the latest."""

    __slots__ = ("_latest", "count")

    def __init__(self) -> None:
        self.count = 0
        self._latest: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        self.count += 1
        self._latest.append(seconds)

    def to_dict(self) -> dict[str, float]:
        if not self._latest:
            return {"count": 0}
        ordered = sorted(self._latest)
        last = len(ordered) - 1
        ranks = {"p50_ms": last // 2, "p99_ms": round(last * 0.99), "max_ms": last}
        return {"count": self.count, **{name: 1000 * ordered[rank] for name, rank in ranks.items()}}


@dataclass(slots=True)
class ServerMetrics:
    """Totals over the MCP servers of one machine."""

    wait: Durations = field(default_factory=Durations)
    start: Durations = field(default_factory=Durations)
    reset: Durations = field(default_factory=Durations)
    call: Durations = field(default_factory=Durations)
    failures: int = 0
    retries: int = 0
    crashes: int = 0
    start_failures: int = 0
    reaped: int = 0

    def to_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.to_dict() if isinstance(value, Durations) else value for name, value in values.items()}
