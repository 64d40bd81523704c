"""Many rollouts that only call one tool, to measure what a pool of servers can take (`benchmax mcp bench`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import uuid4

from benchmax.envs.mcp.env import ParallelMcpEnv
from benchmax.envs.mcp.timings import Durations
from benchmax.envs.types import ToolResult
from benchmax.errors import RolloutError


@dataclass(slots=True)
class LoadReport:
    """Results so far."""

    began: float = field(default_factory=monotonic)
    ready_seconds: float = 0.0
    rollouts: int = 0
    calls: Durations = field(default_factory=Durations)
    failures: Counter[str] = field(default_factory=Counter)
    machines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return monotonic() - self.began

    def to_dict(self) -> dict[str, Any]:
        return {
            "ready_seconds": self.ready_seconds,
            "seconds": self.seconds,
            "rollouts": self.rollouts,
            "calls_per_second": self.calls.count / max(self.seconds, 1e-9),
            "call": self.calls.to_dict(),
            "failures": dict(self.failures),
            "machines": [{key: value for key, value in each.items() if key != "pids"} for each in self.machines],
        }


async def run_load_test(
    env: ParallelMcpEnv,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    seconds: float,
    calls: int = 10,
    on_progress: Callable[[LoadReport], None] = lambda report: None,
) -> LoadReport:
    """Play rollouts of `calls` calls on every server for `seconds`; `on_progress` is called twice a second."""
    began = monotonic()
    await env.warm()
    report = LoadReport(ready_seconds=monotonic() - began)
    until = monotonic() + seconds
    playing = asyncio.gather(*(_play(env, tool, arguments, calls, until, report) for _ in range(env.num_servers)))
    try:
        while not playing.done():
            report.machines = await env.state()
            on_progress(report)
            await asyncio.wait([playing], timeout=0.5)
        await playing
    finally:
        playing.cancel()
    report.machines = await env.state()
    return report


async def _play(
    env: ParallelMcpEnv, tool: str, arguments: Mapping[str, Any], calls: int, until: float, report: LoadReport
) -> None:
    while monotonic() < until:
        rollout = uuid4().hex
        try:
            await env.init_rollout(rollout)
            for _ in range(calls):
                if monotonic() > until:
                    break
                began = monotonic()
                result = await env.run_tool(rollout, tool, **arguments)
                report.calls.add(monotonic() - began)
                if isinstance(result, ToolResult) and result.is_error:
                    report.failures[result.text[:200]] += 1
            report.rollouts += 1
        except RolloutError as error:
            report.failures[str(error)[:200]] += 1
        finally:
            await env.release_rollout(rollout)
