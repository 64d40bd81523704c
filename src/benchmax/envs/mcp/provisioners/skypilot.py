"""Agents on machines that SkyPilot rents or reserves: clouds, Kubernetes, Slurm.

The installed benchmax is copied with the workdir and runs on the machines in a virtual environment of its own. The
agent is the cluster's job and is started again when it dies. Its port is bound to the node alone and reached through
ssh, so that nothing is open to the network and every byte is encrypted.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import io
import logging
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmax.envs.mcp.packed_workdir import copy_workdir
from benchmax.envs.mcp.provisioners.base import BaseProvisioner, agent_arguments
from benchmax.envs.mcp.workdir import workdir_folder
from benchmax.errors import ConfigError, EnvDefinitionError
from benchmax.net.ports import free_port

logger = logging.getLogger(__name__)

MAX_SERVERS_PER_NODE = 100
BASE_PORT = 8080
READY_SECONDS = 1_860.0
ASK_SECONDS = 2.0
IDLE_MINUTES = 60
_IGNORED = shutil.ignore_patterns(".git", "__pycache__", "*.pyc", ".*_cache", "console", ".console-*")
_FAILED = ("FAILED", "FAILED_SETUP", "FAILED_DRIVER", "CANCELLED", "SUCCEEDED")

_SETUP = """\
set -e
for python in python3.13 python3.12 python3.11 python3; do
  "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && break || python=
done
if [ -z "$python" ]; then echo "benchmax needs Python 3.11, 3.12 or 3.13 on the nodes" >&2; exit 1; fi
# On Slurm all nodes share this folder: one at a time.
exec 9>agent-venv.lock
flock 9
"$python" -m venv agent-venv
agent-venv/bin/python -m pip install --quiet -r requirements.txt
for packages in agent-venv/lib/python*/site-packages; do echo "$PWD/package" > "$packages/benchmax.pth"; done
"""

_RUN = """\
port=$(({base} + SKYPILOT_NODE_RANK))
host={host}
root=$(mktemp -d)
trap 'kill $agent 2>/dev/null; wait; rm -rf "$root"' EXIT TERM INT
while true; do
  agent-venv/bin/python -m benchmax.envs.mcp.agent --workdir "$PWD/workdir" \\
    {arguments} --listen "$host:$port" --allow-host "$host" --root "$root/rollouts" &
  agent=$!
  wait $agent
  echo "The agent ended with code $?; another one is started."
  sleep 1
done
"""


class SkypilotProvisioner(BaseProvisioner):
    """Runs the servers of a workdir on machines that SkyPilot brings up and takes down.

    `cloud` is any SkyPilot infrastructure ("aws", "gcp/us-central1", "k8s/context", "slurm/cluster"). The price an hour
    is logged and passed to `on_cost` before the launch; above `max_hourly_cost` nothing is launched. Where it can,
    SkyPilot takes down machines that are idle for an hour because this process was killed.
    """

    def __init__(
        self,
        workdir_path: str | os.PathLike[str],
        cloud: str,
        num_nodes: int = 1,
        servers_per_node: int = 5,
        cpus: str | int | float = "2+",
        memory: str | int | float | None = "8+",
        base_cluster_name: str = "benchmax-env-cluster",
        *,
        server_memory: str | None = None,
        max_hourly_cost: float | None = None,
        on_cost: Callable[[str, float], None] | None = None,
    ) -> None:
        if num_nodes < 1:
            raise EnvDefinitionError(f"num_nodes must be at least 1, not {num_nodes}. Give more.")
        if not 1 <= servers_per_node <= MAX_SERVERS_PER_NODE:
            raise EnvDefinitionError(
                f"servers_per_node must be from 1 to {MAX_SERVERS_PER_NODE}, not {servers_per_node}. Use more nodes."
            )
        self._workdir = workdir_folder(workdir_path)
        self._infra = str(cloud).lower()
        self._num_nodes = num_nodes
        self._servers = servers_per_node
        self._agent_arguments = " ".join(agent_arguments(servers_per_node, server_memory))
        self._size = {"cpus": cpus, "memory": memory}
        self._name = f"{base_cluster_name}-{secrets.token_hex(2)}"
        self._max_cost = max_hourly_cost
        self._on_cost = on_cost
        self._launched = False
        self._job: int | None = None
        self._tunnels: dict[str, _Tunnel] = {}

    @property
    def num_servers(self) -> int:
        return self._num_nodes * self._servers

    @property
    def cluster_name(self) -> str:
        return self._name

    async def provision_servers(self, api_secret: str) -> list[str]:
        if self._launched:
            raise RuntimeError(f"The cluster {self._name} is up already. Tear it down first.")
        with tempfile.TemporaryDirectory(prefix="benchmax-sky-") as folder:
            launch = asyncio.ensure_future(asyncio.to_thread(self._launch, Path(folder), api_secret))
            try:
                await asyncio.shield(launch)
                await asyncio.gather(
                    *(asyncio.to_thread(self._wait_ready, tunnel) for tunnel in self._tunnels.values())
                )
            except BaseException:
                await asyncio.shield(self._undo(launch))
                raise
        return list(self._tunnels)

    async def _undo(self, launch: asyncio.Future[None]) -> None:
        """Take down what came up. A launch cannot be stopped, so its end is waited for first."""
        if not launch.done():
            logger.warning("%s is being launched, and will be taken down as soon as it is up.", self._name)
            await asyncio.wait([launch])
        if not launch.cancelled():
            launch.exception()  # retrieved, as its caller has an error already
        await self.teardown()

    async def recover(self, address: str, api_secret: str) -> str | None:
        """Open the tunnel again if it broke; the node restarts its agent by itself."""
        tunnel = self._tunnels.get(address)
        if tunnel is None:
            return None
        await asyncio.to_thread(tunnel.open)
        return address

    async def teardown(self) -> None:
        tunnels, self._tunnels = list(self._tunnels.values()), {}
        for tunnel in tunnels:
            await asyncio.to_thread(tunnel.close)
        if self._launched:
            await asyncio.to_thread(self._down)
            self._launched = False

    # Everything below blocks and runs in threads.

    def _launch(self, folder: Path, secret: str) -> None:
        sky = _sky()
        self._report_cost()
        task = self._task(folder, secret)
        self._launched = True  # from here on, machines may have to be taken down
        options: dict[str, Any] = {} if self._on_slurm else {"idle_minutes_to_autostop": IDLE_MINUTES, "down": True}
        try:
            self._job, handle = sky.get(sky.launch(task, cluster_name=self._name, **options))
        except sky.exceptions.ResourcesUnavailableError as error:
            raise EnvDefinitionError(
                f"SkyPilot finds no machines on {self._infra}: {error}. Ask for less, or for another cloud."
            ) from None
        for rank, runner in enumerate(handle.get_command_runners()):
            tunnel = _Tunnel(runner, BASE_PORT + rank)
            self._tunnels[tunnel.address] = tunnel

    def _down(self) -> None:
        sky = _sky()
        try:
            sky.get(sky.down(self._name))
        except sky.exceptions.ClusterDoesNotExist:
            logger.info("%s did not come up; there is nothing to take down.", self._name)

    def _task(self, folder: Path, secret: str) -> Any:
        sky = _sky()
        lay_out(folder, self._workdir)
        # On Slurm, ssh ends at the login node, so the agent has to be reachable from there.
        host = '"$(hostname)"' if self._on_slurm else "127.0.0.1"
        task = sky.Task(
            name="benchmax-mcp", num_nodes=self._num_nodes, workdir=str(folder), setup=_SETUP,
            run=_RUN.format(base=BASE_PORT, host=host, arguments=self._agent_arguments),
            secrets={"BENCHMAX_MCP_SECRET": secret},
        )  # fmt: skip
        return task.set_resources(self._resources())

    def _report_cost(self) -> None:
        """Report the cost; ConfigError when it is over the limit."""
        price, best = self._offer()
        offer = f"{self._num_nodes} × {best}: ${price:,.2f} an hour"
        logger.info("SkyPilot will launch %s as %s", offer, self._name)
        if self._on_cost is not None:
            self._on_cost(offer, price)
        if self._max_cost is not None and price > self._max_cost:
            raise ConfigError(
                f"{offer} is more than the ${self._max_cost:,.2f} allowed. Raise max_hourly_cost, or ask for less."
            )

    def _offer(self) -> tuple[float, str]:
        """The price per hour, and the machines."""
        sky = _sky()
        with sky.Dag() as dag:
            task = sky.Task(num_nodes=self._num_nodes).set_resources(self._resources())
        sky.Optimizer.optimize(dag, quiet=True)
        # Machines of a Slurm cluster have no price.
        price = 0.0 if self._on_slurm else task.best_resources.get_cost(3600) * self._num_nodes
        return price, str(task.best_resources)

    def _resources(self) -> Any:
        return _sky().Resources(infra=self._infra, **self._size)

    @property
    def _on_slurm(self) -> bool:
        return self._infra.startswith("slurm")

    def _wait_ready(self, tunnel: _Tunnel) -> None:
        until, checked = time.monotonic() + READY_SECONDS, time.monotonic()
        tunnel.open()
        while not tunnel.answers():
            if tunnel.address not in self._tunnels:
                return  # it was torn down
            if time.monotonic() > until:
                raise EnvDefinitionError(f"An agent of {self._name} did not answer in time. {self._last_lines()}")
            if time.monotonic() - checked > 10:
                checked = time.monotonic()
                self._check_job()
                tunnel.open()
            time.sleep(0.5)

    def _check_job(self) -> None:
        sky = _sky()
        status = sky.get(sky.job_status(self._name, [self._job])).get(self._job)
        if status is not None and status.name in _FAILED:
            raise EnvDefinitionError(f"The agents on {self._name} ended ({status.name}). {self._last_lines()}")

    def _last_lines(self) -> str:
        lines = io.StringIO()
        _sky().tail_logs(self._name, self._job, follow=False, tail=20, output_stream=lines)
        return f"The job's last lines:\n{lines.getvalue()[-2_000:]}"


class _Tunnel:
    """Forwards a local port to an agent's port by ssh."""

    def __init__(self, runner: Any, port: int) -> None:
        self._runner = runner
        self._port = port
        self._local = free_port()
        self._ssh: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._local}"

    def open(self) -> None:
        """Start ssh unless it runs."""
        if self._ssh is not None and self._ssh.poll() is None:
            return
        command = self._runner.port_forward_command([(self._local, self._port)], connect_timeout=30)
        node = getattr(self._runner, "slurm_node", None)
        near, far = f"{self._local}:localhost:{self._port}", f"{self._local}:{node or 'localhost'}:{self._port}"
        command = [f"127.0.0.1:{far}" if part == near else part for part in command]
        # -S none: a shared master connection would keep the port after this process has ended.
        if command[0] == "ssh":
            command[1:1] = ["-S", "none", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=10"]
        self._ssh = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def answers(self) -> bool:
        from urllib.error import URLError
        from urllib.request import urlopen

        try:
            with urlopen(f"http://{self.address}/health", timeout=ASK_SECONDS) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False

    def close(self) -> None:
        if self._ssh is not None and self._ssh.poll() is None:
            self._ssh.terminate()
            try:
                self._ssh.wait(5)
            except subprocess.TimeoutExpired:
                self._ssh.kill()
                self._ssh.wait()


def lay_out(folder: Path, workdir: Path) -> None:
    """What is copied to the machines: the workdir, the installed benchmax, and its requirements."""
    import benchmax

    copy_workdir(workdir, folder / "workdir")
    shutil.copytree(Path(benchmax.__file__).parent, folder / "package" / "benchmax", ignore=_IGNORED)
    (folder / "requirements.txt").write_text("\n".join(requirements()) + "\n", "utf-8")


def requirements() -> list[str]:
    """The requirements of an agent: those of benchmax and of its extra `mcp`."""
    from packaging.requirements import Requirement

    found = (Requirement(text) for text in importlib.metadata.requires("benchmax") or [])
    return sorted(
        f"{need.name}{need.specifier}"
        for need in found
        if need.marker is None or need.marker.evaluate({"extra": "mcp"})
    )


def _sky() -> Any:
    try:
        import sky
    except ImportError:
        raise ConfigError("SkypilotProvisioner needs SkyPilot. Install it: pip install 'skypilot[aws]'") from None
    return sky
