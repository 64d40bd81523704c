"""MCP servers on machines that SkyPilot brings up: a real launch of three nodes, on a Slurm cluster on this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollouts_on import DEMO, play_all
from slurm_world import USER, missing, slurm

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import SkypilotProvisioner
from benchmax.errors import ConfigError

pytest.importorskip("sky", reason="needs SkyPilot: make test-cluster")
pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(missing() is not None, reason=missing() or "")]
PERFECT = {"completion": 1.0, "variable": 1.0, "log": 1.0}


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="bmsky", dir="/tmp"))
    sky = Path(sys.executable).with_name("sky")
    with slurm(folder, Path(sys.executable).with_name("uv")) as home:
        before = os.environ.get("HOME", "/root")
        os.environ.update(HOME=str(home), SKYPILOT_DISABLE_USAGE_COLLECTION="1")
        try:
            subprocess.run([sky, "api", "start"], check=True, timeout=180)
            subprocess.run([sky, "check", "slurm"], check=True, timeout=120)
            yield "slurm/loop"
        finally:
            subprocess.run([sky, "api", "stop"], check=False, timeout=60)
            os.environ["HOME"] = before
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def running() -> list[str]:
    """Agents of the cluster's user."""
    shown = subprocess.run(["pgrep", "-u", USER, "-f", "benchmax.envs.mcp"], capture_output=True, text=True)
    return shown.stdout.split()


def clusters() -> str:
    """What SkyPilot says there is."""
    return subprocess.run([Path(sys.executable).with_name("sky"), "status"], capture_output=True, text=True).stdout


async def test_three_nodes_serve_isolated_rollouts_and_nothing_is_left(cloud: str) -> None:
    costs: list[tuple[str, float]] = []
    provisioner = SkypilotProvisioner(
        DEMO, cloud, num_nodes=3, servers_per_node=3, cpus=1, memory=None, on_cost=lambda *cost: costs.append(cost)
    )
    env = ParallelMcpEnv(DEMO, provisioner, provision_at_init=False)
    try:
        assert await play_all(env, 36) == [PERFECT] * 36
        assert [machine["capacity"] for machine in await env.state()] == [3, 3, 3]
        assert all(machine["address"].startswith("127.0.0.1:") for machine in await env.state())
        [(words, price)] = costs
        assert "3 ×" in words
        assert price == 0.0
    finally:
        await env.shutdown()
    assert running() == []
    assert provisioner.cluster_name not in clusters()


async def test_a_launch_that_is_too_dear_is_refused_before_anything_starts(cloud: str) -> None:
    provisioner = SkypilotProvisioner(DEMO, cloud, cpus=1, memory=None, max_hourly_cost=-1.0)
    with pytest.raises(ConfigError, match="is more than"):
        await provisioner.provision_servers("x" * 32)
    assert running() == []


async def test_a_cancelled_launch_leaves_no_cluster(cloud: str) -> None:
    provisioner = SkypilotProvisioner(DEMO, cloud, cpus=1, memory=None)
    launch = asyncio.create_task(provisioner.provision_servers("x" * 32))
    while not provisioner._launched:
        await asyncio.sleep(0.1)
    launch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launch
    assert provisioner.cluster_name not in clusters()
    assert running() == []
