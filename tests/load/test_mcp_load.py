"""L4 and L5: many rollouts over many servers, each with its own state, none lost."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from benchmax import EnvHost, ScriptedModel, ToolCall, make_example, run_batch
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner
from living import proportional_memory
from mcp_world import make_workdir, opened, wait_until_gone

DEMO = Path(__file__).parents[2] / "examples" / "mcp_demo"


@pytest.mark.slow
async def test_128_rollouts_over_16_servers_read_back_their_own(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=16, spares=4) as env:
        began = monotonic()
        assert await env.warm() >= 16
        assert monotonic() - began < 100

        async def play(number: int) -> bool:
            name, nonce = f"r{number}", secrets.token_hex(16)
            await env.init_rollout(name)
            await env.run_tool(name, "remember", word=nonce)
            await env.run_tool(name, "wait", seconds=0.01)
            seen = await env.run_tool(name, "recall")
            await env.release_rollout(name)
            return seen == f"{nonce}|{nonce}"

        assert sum(await asyncio.gather(*map(play, range(128)))) == 128
        (machine,) = await env.state()
        assert machine["start"]["count"] >= 128, "every rollout had servers of its own"


@pytest.mark.slow
async def test_500_rollouts_over_100_servers_and_none_is_lost() -> None:
    env = ParallelMcpEnv(DEMO, LocalProvisioner(DEMO, 100))
    began = monotonic()
    assert await env.warm() >= 100
    assert monotonic() - began < 100
    pids = (await env.state())[0]["pids"]
    assert proportional_memory(pids) < 3.0 * 2**30

    def play(messages: list[Any]) -> Any:
        number = messages[0]["content"]
        if len(messages) > 1:
            return f"It is {number}."
        return [
            ToolCall("define_variable", f'{{"name": "answer", "value": {number}}}'),
            ToolCall("append_log", f'{{"filename": "answer.log", "message": "{number}"}}'),
        ]

    examples = [
        make_example(prompt_messages=[{"role": "user", "content": str(n)}], task={"ground_truth": n})
        for n in range(500)
    ]
    async with EnvHost(env) as host:
        played = await run_batch(host, examples, ScriptedModel(play))
        began = monotonic()
    assert monotonic() - began < 30
    assert [r.error for r in played if r.error] == []
    assert all(r.rewards == {"completion": 1.0, "variable": 1.0, "log": 1.0} for r in played)
    assert len(played) == 500
    assert wait_until_gone(pids) == []
