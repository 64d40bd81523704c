"""What the cluster provisioners decide without a cluster; `make test-cluster` runs them on real ones."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from benchmax.envs.mcp.packed_workdir import pack, unpack
from benchmax.envs.mcp.provisioners import RayProvisioner, SkypilotProvisioner
from benchmax.envs.mcp.provisioners.skypilot import lay_out, requirements
from benchmax.errors import EnvDefinitionError

DEMO = Path(__file__).parents[4] / "examples" / "mcp_demo"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RayProvisioner(DEMO, num_nodes=0), "num_nodes must be at least 1"),
        (lambda: RayProvisioner(DEMO, servers_per_node=0), "servers_per_node must be at least 1"),
        (lambda: SkypilotProvisioner(DEMO, "aws", num_nodes=0), "num_nodes must be at least 1"),
        (lambda: SkypilotProvisioner(DEMO, "aws", servers_per_node=101), "from 1 to 100, not 101"),
    ],
)
def test_senseless_sizes_are_refused(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]


def test_a_folder_without_a_workdir_is_refused_at_once(tmp_path: Path) -> None:
    for make in (RayProvisioner, lambda folder: SkypilotProvisioner(folder, "aws")):
        with pytest.raises(FileNotFoundError, match="mcp_config"):
            make(tmp_path)


def test_sizes_are_known_before_the_launch() -> None:
    assert SkypilotProvisioner(DEMO, "aws", num_nodes=5, servers_per_node=20).num_servers == 100
    assert RayProvisioner(DEMO, num_nodes=2, servers_per_node=3).num_servers == 6
    told = SkypilotProvisioner(DEMO, "aws", servers_per_node=20, server_memory="1.5 GB")._agent_arguments
    assert told == "--servers 20 --server-memory 1.5GB"
    names = {SkypilotProvisioner(DEMO, "aws").cluster_name for _ in range(20)}
    assert all(name.startswith("benchmax-env-cluster-") for name in names)
    assert len(names) > 1


def test_a_packed_workdir_comes_out_the_same(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "__pycache__").mkdir(parents=True)
    (source / "deep" / "run.sh").write_text("echo hi\n")
    (source / "deep" / "run.sh").chmod(0o755)
    (source / "deep" / "__pycache__" / "x.pyc").write_bytes(b"0")
    unpack(pack(source), tmp_path / "copy")
    copied = tmp_path / "copy" / "deep" / "run.sh"
    assert copied.read_text() == "echo hi\n"
    assert copied.stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "copy" / "deep" / "__pycache__").exists()


def test_what_travels_to_a_node_is_an_agent_that_starts(tmp_path: Path) -> None:
    lay_out(tmp_path / "out", DEMO)
    assert (tmp_path / "out" / "workdir" / "mcp_config.yaml").is_file()
    needed = (tmp_path / "out" / "requirements.txt").read_text().splitlines()
    assert needed == requirements()
    names = {Requirement(line).name for line in needed}
    assert {"mcp", "pyyaml", "aiohttp"} <= names
    assert not {"torch", "fastapi", "pytest"} & names
    agent = [sys.executable, "-P", "-m", "benchmax.envs.mcp.agent", "--help"]
    found = subprocess.run(
        agent, env={"PYTHONPATH": str(tmp_path / "out" / "package")}, capture_output=True, text=True, check=True
    )
    assert "--end-with-stdin" in found.stdout


class Missing(Exception):
    """There is no such cluster."""


class Sky:
    """As much of SkyPilot as a launch asks for; the launch takes as long as a test wants."""

    exceptions = SimpleNamespace(ClusterDoesNotExist=Missing, ResourcesUnavailableError=LookupError)
    Optimizer = SimpleNamespace(optimize=lambda dag, quiet: None)

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.clusters: set[str] = set()
        self.sold_out = False
        offer = SimpleNamespace(get_cost=lambda seconds: 1.0)
        task = SimpleNamespace(best_resources=offer, set_resources=lambda resources: task)
        self.Task = lambda **asked: task
        self.Dag = nullcontext
        self.Resources = SimpleNamespace

    def launch(self, task: object, cluster_name: str, **options: object) -> Callable[[], object]:
        def bring_up() -> object:
            self.begun.set()
            assert self.go_on.wait(60)
            if self.sold_out:
                raise LookupError("nothing left")
            self.clusters.add(cluster_name)
            return 1, SimpleNamespace(get_command_runners=list)

        return bring_up

    def down(self, name: str) -> Callable[[], object]:
        def take_down() -> None:
            if name not in self.clusters:
                raise Missing(name)
            self.clusters.remove(name)

        return take_down

    def get(self, request: Callable[[], object]) -> object:
        return request()


@pytest.fixture
def sky(monkeypatch: pytest.MonkeyPatch) -> Sky:
    made = Sky()
    monkeypatch.setitem(sys.modules, "sky", made)
    return made


async def test_the_port_stays_closed_to_the_world(sky: Sky, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tasks: list[dict[str, str]] = []
    task = SimpleNamespace(set_resources=lambda resources: resources)
    monkeypatch.setattr(sky, "Task", lambda **asked: tasks.append(asked) or task)
    resources = SkypilotProvisioner(DEMO, "aws")._task(tmp_path, "x" * 32)
    assert not hasattr(resources, "ports")
    assert "host=127.0.0.1\n" in tasks[0]["run"]


@pytest.mark.parametrize("times", [1, 2])
async def test_what_a_cancelled_launch_brings_up_is_taken_down(sky: Sky, times: int) -> None:
    provisioner = SkypilotProvisioner(DEMO, "aws")
    running = asyncio.create_task(provisioner.provision_servers("x" * 32))
    assert await asyncio.to_thread(sky.begun.wait, 60)
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0)
    sky.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    until = time.monotonic() + 60
    while provisioner._launched and time.monotonic() < until:  # after a second Ctrl-C it goes on behind our back
        await asyncio.sleep(0.01)
    assert sky.clusters == set()
    assert not provisioner._launched


async def test_a_launch_for_which_there_is_nothing_left_says_so(sky: Sky) -> None:
    sky.sold_out = True
    sky.go_on.set()
    with pytest.raises(EnvDefinitionError, match="finds no machines on aws: nothing left"):
        await SkypilotProvisioner(DEMO, "aws").provision_servers("x" * 32)


def test_naming_them_imports_neither_ray_nor_sky() -> None:
    code = "import sys, benchmax.envs.mcp.provisioners; sys.exit('ray' in sys.modules or 'sky' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
