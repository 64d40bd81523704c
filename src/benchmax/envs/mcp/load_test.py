"""Many rollouts that do nothing but call one tool, to see what a pool of servers can take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import uuid4

from benchmax.envs.mcp.agent.timings import Times
from benchmax.envs.mcp.env import ParallelMcpEnv
from benchmax.envs.types import ToolResult
from benchmax.errors import RolloutError


@dataclass(slots=True)
class Strain:
    """What has been done so far."""

    began: float = field(default_factory=monotonic)
    ready_seconds: float = 0.0
    rollouts: int = 0
    calls: Times = field(default_factory=Times)
    failures: Counter[str] = field(default_factory=Counter)
    machines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return monotonic() - self.began

    def told(self) -> dict[str, Any]:
        return {
            "ready_seconds": self.ready_seconds,
            "seconds": self.seconds,
            "rollouts": self.rollouts,
            "calls_per_second": self.calls.count / max(self.seconds, 1e-9),
            "call": self.calls.told(),
            "failures": dict(self.failures),
            "machines": [{key: value for key, value in each.items() if key != "pids"} for each in self.machines],
        }


async def hammer(
    env: ParallelMcpEnv,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    seconds: float,
    calls: int = 10,
    tell: Callable[[Strain], None] = lambda strain: None,
) -> Strain:
    """Play rollouts of `calls` calls on every server for so many seconds; `tell` hears of it twice a second."""
    began = monotonic()
    await env.warm()
    strain = Strain(ready_seconds=monotonic() - began)
    until = monotonic() + seconds
    playing = asyncio.gather(*(_play(env, tool, arguments, calls, until, strain) for _ in range(env.num_servers)))
    try:
        while not playing.done():
            strain.machines = await env.state()
            tell(strain)
            await asyncio.wait([playing], timeout=0.5)
        await playing
    finally:
        playing.cancel()
    strain.machines = await env.state()
    return strain


async def _play(
    env: ParallelMcpEnv, tool: str, arguments: Mapping[str, Any], calls: int, until: float, strain: Strain
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
                strain.calls.add(monotonic() - began)
                if isinstance(result, ToolResult) and result.is_error:
                    strain.failures[result.text[:200]] += 1
            strain.rollouts += 1
        except RolloutError as error:
            strain.failures[str(error)[:200]] += 1
        finally:
            await env.release_rollout(rollout)
