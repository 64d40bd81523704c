"""What every cluster must do: many rollouts over its machines, each with a memory and files of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.errors import BenchmaxError

DEMO = Path(__file__).parents[2] / "examples" / "mcp_demo"


async def play(env: ParallelMcpEnv, number: int, pause: float = 0.0) -> dict[str, float]:
    """Write a nonce into memory and a file, read both back, be scored for it."""
    rollout = f"rollout-{number}"
    await env.init_rollout(rollout)
    try:
        await env.run_tool(rollout, "define_variable", name="answer", value=number)
        await env.run_tool(rollout, "append_log", filename="answer.log", message=str(number))
        await asyncio.sleep(pause)
        assert float(str(await env.run_tool(rollout, "get_variable", name="answer"))) == number
        assert str(await env.run_tool(rollout, "read_log", filename="answer.log")).split() == [str(number)]
        said = [{"role": "assistant", "content": f"It is {number}."}]
        return dict(await env.compute_reward(rollout, said, {"ground_truth": number}))  # type: ignore[arg-type]
    finally:
        await env.release_rollout(rollout)


async def play_all(
    env: ParallelMcpEnv, count: int, pause: float = 0.0, when_half_done: Callable[[], Awaitable[None]] | None = None
) -> list[dict[str, float] | BenchmaxError]:
    """Rollouts at once; those whose machine was lost give the error they got."""
    results: list[dict[str, float] | BenchmaxError] = []
    half = asyncio.Event()

    async def one(number: int) -> None:
        try:
            results.append(await play(env, number, pause))
        except BenchmaxError as error:
            results.append(error)
        if len(results) * 2 >= count:
            half.set()

    async def disturb() -> None:
        if when_half_done is not None:
            await half.wait()
            await when_half_done()

    await asyncio.gather(disturb(), *(one(number) for number in range(1, count + 1)))
    return results
