"""MCP servers on a real Ray cluster: several nodes on this machine, one of them killed in the middle."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rollouts_on import DEMO, play, play_all

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import RayProvisioner
from benchmax.errors import BenchmaxError, EnvDefinitionError

ray = pytest.importorskip("ray", reason="needs Ray: make test-cluster")
pytestmark = pytest.mark.timeout(420)
HERE = Path(tempfile.mkdtemp(prefix="bm", dir="/tmp"))
PERFECT = {"completion": 1.0, "variable": 1.0, "log": 1.0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ["TMPDIR"] = str(HERE)  # actors put what they make there
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()
    shutil.rmtree(HERE)


def left_behind() -> list[str]:
    """Agents and servers that run in the folders actors made."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode() + os.readlink(folder / "cwd")
        except OSError:
            continue
        if f"{HERE}/benchmax-mcp-" in words:
            found.append(words)
    return found


async def all_gone(seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while left_behind() and time.monotonic() < until:
        await asyncio.sleep(0.2)
    return not left_behind()


async def seats(env: ParallelMcpEnv) -> int:
    return sum(machine["capacity"] for machine in await env.state() if "lost" not in machine)


async def test_two_nodes_serve_isolated_rollouts(cluster: Any) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    env = ParallelMcpEnv(DEMO, RayProvisioner(DEMO, servers_per_node=4))
    try:
        results = await play_all(env, 40)
        assert results == [PERFECT] * 40
        assert await seats(env) == 8
        assert len(await env.state()) == 2
    finally:
        await env.shutdown()
        for node in nodes:
            cluster.remove_node(node)
    assert await all_gone(), left_behind()
    assert not list(HERE.glob("benchmax-mcp-*"))


async def test_a_killed_node_loses_only_its_own_rollouts_and_capacity_returns(cluster: Any) -> None:
    nodes = [cluster.add_node(num_cpus=2) for _ in range(3)]
    env = ParallelMcpEnv(DEMO, RayProvisioner(DEMO, num_nodes=3, servers_per_node=4))

    async def kill() -> None:
        await asyncio.to_thread(cluster.remove_node, nodes.pop(), allow_graceful=False)

    try:
        results = await play_all(env, 60, pause=0.3, when_half_done=kill)
        failed = [result for result in results if isinstance(result, BenchmaxError)]
        assert len(results) == 60
        assert len(failed) <= 4, "no more than were on the killed node"
        assert [result for result in results if isinstance(result, dict)] == [PERFECT] * (60 - len(failed))
        until = time.monotonic() + 120
        while await seats(env) < 12 and time.monotonic() < until:
            await asyncio.sleep(0.5)
        assert await seats(env) == 12
        assert await play_all(env, 24) == [PERFECT] * 24
    finally:
        await env.shutdown()
        for node in nodes:
            cluster.remove_node(node)
    assert await all_gone(), left_behind()


async def test_too_few_nodes_are_named(cluster: Any) -> None:
    provisioner = RayProvisioner(DEMO, num_nodes=99)
    with pytest.raises(EnvDefinitionError, match="99 are needed"):
        await provisioner.provision_servers("x" * 32)


async def test_a_setup_that_fails_is_told_and_leaves_nothing(cluster: Any, tmp_path: Path) -> None:
    workdir = Path(shutil.copytree(DEMO, tmp_path / "broken"))
    (workdir / "setup.sh").write_text("echo no such package >&2\nexit 3\n")
    node = cluster.add_node(num_cpus=1)
    env = ParallelMcpEnv(workdir, RayProvisioner(workdir))
    try:
        with pytest.raises(BenchmaxError, match="no such package"):
            await play(env, 1)
    finally:
        await env.shutdown()
        cluster.remove_node(node)
    assert await all_gone(), left_behind()
