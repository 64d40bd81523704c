"""MCP environments when things happen at the same moment: gave up and granted, reset and released, opened and shut."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import ManualProvisioner
from benchmax.errors import BenchmaxError
from mcp_world import SMALL_SERVER, alive, descendants, make_workdir, opened

SLEEPER = (
    SMALL_SERVER
    + """
server = SmallServer("sleeper")

@server.tool()
def pid() -> str:
    return str(os.getpid())

server.run("stdio")
"""
)
AT_THE_GATE = """
import os, time
while os.path.exists(os.environ["GATE"]):  # a start that lasts until it was seen
    time.sleep(0.01)
"""


async def test_a_lease_released_and_cancelled_at_once_is_released(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w", SLEEPER), 1, spares=0) as env:
        await env.init_rollout("a")
        rollout = env._pool.lease("a")

        async def both() -> None:
            """What a cancelled release sends, in one message."""
            agent = rollout.machine.agent
            releasing = asyncio.ensure_future(env._pool.release("a"))
            while not agent._outbox:
                await asyncio.sleep(0)
            releasing.cancel()
            await asyncio.wait([releasing])

        await env._io.run(both)
        await asyncio.wait_for(env.init_rollout("b"), 60)
        assert (await env.state())[0]["leased"] == 1


async def test_a_rollout_released_while_it_is_reset_leaves_no_servers(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    server = {"command": "python", "args": ["server.py"], "read": [str(gate)], "env": {"GATE": f"{gate}/closed"}}
    workdir = make_workdir(tmp_path / "w", AT_THE_GATE + SLEEPER, json.dumps({"mcpServers": {"it": server}}))
    async with opened(workdir, 1, spares=0) as env:
        await env.init_rollout("a")
        (gate / "closed").touch()
        resetting = asyncio.create_task(env.reset_rollout("a"))
        until = time.monotonic() + 60
        while not (await env.state())[0]["starting"] and time.monotonic() < until:
            await asyncio.sleep(0)
        await env.release_rollout("a")
        (gate / "closed").unlink()
        with pytest.raises(BenchmaxError):
            await resetting
        while (left := await servers_of(env)) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert not left


async def servers_of(env: ParallelMcpEnv) -> list[int]:
    """Server processes, those that nobody counts included."""
    agent = env._provisioner._agent._process.pid  # type: ignore[attr-defined]
    fork_servers = [pid for pid in descendants(agent) if b"forker" in command_of(pid)]
    forked = [child for pid in fork_servers for child in descendants(pid)]
    return alive(forked)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_many_large_messages_at_once_do_not_cost_the_machine(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w", SLEEPER), 1, spares=0) as env:
        await env.init_rollout("a")
        agent = env._pool.lease("a").machine.agent

        async def flood() -> list[BaseException | None]:
            asked = (agent.request("nonsense", pad="x" * (48 * 2**20)) for _ in range(3))
            return await asyncio.gather(*asked, return_exceptions=True)

        said = await env._io.run(flood)
        assert [str(each)[:26] for each in said] == ["There is no operation 'non"] * 3
        assert str(await env.run_tool("a", "pid")).isdigit()


async def test_an_environment_shut_down_while_it_connects_leaves_nothing_under_way(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w", SLEEPER)
    nobody = ManualProvisioner(["127.0.0.1:9", "127.0.0.1:19"])
    env = ParallelMcpEnv(workdir, nobody, api_secret="0123456789abcdef")
    listing = asyncio.create_task(env.list_tools())
    while env._opening is None or len(asyncio.all_tasks(env._io.loop)) < 4:
        await asyncio.sleep(0)
    await env.shutdown()
    with pytest.raises((BenchmaxError, asyncio.CancelledError)):
        await listing
    assert env._io.loop.is_closed()
    assert not asyncio.all_tasks(env._io.loop)
