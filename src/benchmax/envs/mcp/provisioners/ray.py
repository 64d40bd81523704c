"""Agents on the nodes of a Ray cluster, so that servers run beside the training that already runs there.

Each agent is a child of an actor, and ends with it through its standard input. The workdir travels through Ray's object
store. The agent of a lost node is started again on another node.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchmax.envs.mcp.packed_workdir import pack, unpack
from benchmax.envs.mcp.provisioners.agent_process import START_SECONDS, AgentProcess
from benchmax.envs.mcp.provisioners.base import BaseProvisioner, agent_arguments
from benchmax.envs.mcp.workdir import workdir_folder
from benchmax.errors import ConfigError, EnvDefinitionError

PLACE_SECONDS = 60.0
"""How long an agent may wait for processors of its node."""
ASK_SECONDS = 5.0


class RayProvisioner(BaseProvisioner):
    """Runs the servers of a workdir on the nodes of a Ray cluster, one agent a node.

    Without `num_nodes`, on every node that has `cpus` processors. benchmax has to be installed on the nodes, or by
    `runtime_env`. `address` is the cluster's, in case this process is not connected to it yet.
    """

    def __init__(
        self,
        workdir_path: str | os.PathLike[str],
        num_nodes: int | None = None,
        servers_per_node: int = 5,
        cpus: float = 1.0,
        memory: int | None = None,
        address: str = "auto",
        runtime_env: Mapping[str, Any] | None = None,
        server_memory: str | None = None,
    ) -> None:
        if num_nodes is not None and num_nodes < 1:
            raise EnvDefinitionError(
                f"num_nodes must be at least 1, not {num_nodes}. Give more, or none for every node."
            )
        if servers_per_node < 1:
            raise EnvDefinitionError(f"servers_per_node must be at least 1, not {servers_per_node}. Give more.")
        self._workdir = workdir_folder(workdir_path)
        self._num_nodes = num_nodes
        self._servers = servers_per_node
        self._agent_arguments = agent_arguments(servers_per_node, server_memory)
        self._options = {"num_cpus": cpus, "memory": memory, "runtime_env": dict(runtime_env or {}) or None}
        self._address = address
        self._connected_here = False
        self._packed: Any = None
        self._agents: dict[str, _Placed] = {}

    @property
    def num_servers(self) -> int:
        return self._servers * (len(self._agents) or self._num_nodes or 1)

    async def provision_servers(self, api_secret: str) -> list[str]:
        if self._agents:
            raise RuntimeError("These servers are provisioned already. Tear them down first.")
        try:
            nodes = await asyncio.to_thread(self._nodes)
            wanted = self._num_nodes or len(nodes)
            if not nodes or wanted > len(nodes):
                raise EnvDefinitionError(
                    f"{len(nodes)} nodes of the Ray cluster have {self._options['num_cpus']:g} processors, "
                    f"{wanted or 1} are needed. Add nodes, or ask for fewer nodes or processors."
                )
            return await _all_or_none(self._start(node, api_secret) for node in nodes[:wanted])
        except BaseException:
            await self.teardown()
            raise

    async def recover(self, address: str, api_secret: str) -> str | None:
        """Prefers another node, as Ray takes a while to see that one is lost."""
        placed = self._agents.get(address)
        if placed is None:
            return None
        if await asyncio.to_thread(placed.answers):
            return address
        nodes = await asyncio.to_thread(self._nodes)
        if not nodes:
            raise EnvDefinitionError("No node of the Ray cluster has room for the agent. Add one.")
        others = [node for node in nodes if node != placed.node]
        successor = await self._start((others or nodes)[0], api_secret)
        del self._agents[address]
        await asyncio.to_thread(placed.end)
        return successor

    async def teardown(self) -> None:
        agents, self._agents = list(self._agents.values()), {}
        self._packed = None
        await asyncio.gather(*(asyncio.to_thread(placed.end) for placed in agents))
        if self._connected_here:
            self._connected_here = False
            await asyncio.to_thread(_ray().shutdown)

    async def _start(self, node: str, secret: str) -> str:
        placed = _Placed(node, self._options)
        try:
            address = await asyncio.to_thread(placed.start, self._pack(), self._agent_arguments, secret)
        except BaseException:
            await asyncio.to_thread(placed.end)
            raise
        self._agents[address] = placed
        return address

    def _nodes(self) -> list[str]:
        """Live nodes with enough processors, those with the fewest of these agents first."""
        ray = _ray()
        if not ray.is_initialized():
            try:
                ray.init(address=self._address, log_to_driver=False)
            except ConnectionError as error:
                raise ConfigError(
                    f"No Ray cluster at {self._address!r}: {error}. Start one: ray start --head."
                ) from None
            self._connected_here = True
        ours = [placed.node for placed in self._agents.values()]
        fit = [
            node["NodeID"]
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= self._options["num_cpus"]
        ]
        return sorted(fit, key=lambda node: (ours.count(node), node))

    def _pack(self) -> Any:
        if self._packed is None:
            self._packed = _ray().put(pack(self._workdir))
        return self._packed


async def _all_or_none(starting: Iterable[Coroutine[Any, Any, str]]) -> list[str]:
    """The addresses. A failure is raised when all starts have ended, so that none goes on unnoticed."""
    started = await asyncio.gather(*starting, return_exceptions=True)
    if failures := [each for each in started if isinstance(each, BaseException)]:
        raise failures[0]
    return [str(address) for address in started]


class _Placed:
    """The actor of an agent on one node. All methods block."""

    def __init__(self, node: str, options: Mapping[str, Any]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.node = node
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        given = {name: value for name, value in options.items() if value is not None}
        self._actor = _ray().remote(AgentActor).options(scheduling_strategy=strategy, max_restarts=0, **given).remote()

    def start(self, packed: Any, arguments: Sequence[str], secret: str) -> str:
        ray = _ray()
        try:
            ray.get(self._actor.alive.remote(), timeout=PLACE_SECONDS)
            return str(ray.get(self._actor.start.remote(packed, arguments, secret), timeout=START_SECONDS))
        except ray.exceptions.GetTimeoutError:
            raise EnvDefinitionError(
                f"Ray did not start an agent on node {self.node[:8]} in time. Free a processor there, or ask for fewer."
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise EnvDefinitionError(f"On node {self.node[:8]}: {error.cause}") from None
        except ray.exceptions.RayError as error:
            raise EnvDefinitionError(
                f"Node {self.node[:8]} was lost while its agent started: {str(error).splitlines()[0]}. Try again."
            ) from None

    def answers(self) -> bool:
        ray = _ray()
        try:
            return bool(ray.get(self._actor.alive.remote(), timeout=ASK_SECONDS))
        except ray.exceptions.RayError:
            return False

    def end(self) -> None:
        ray = _ray()
        with suppress(ray.exceptions.RayError):  # lost with its node, or hangs; killed below
            ray.get(self._actor.stop.remote(), timeout=ASK_SECONDS)
        ray.kill(self._actor, no_restart=True)


class AgentActor:
    """Runs on the node: unpacks the workdir, starts the agent, and ends it when the actor ends."""

    def __init__(self) -> None:
        self._agent: AgentProcess | None = None

    def start(self, packed: bytes, arguments: Sequence[str], secret: str) -> str:
        self._agent = AgentProcess()
        self._agent.prepare(lambda folder: unpack(packed, folder))
        host = _ray().util.get_node_ip_address()
        self._agent.start([*arguments, "--listen", f"{host}:0"], secret)
        return self._agent.wait_ready()

    def alive(self) -> bool:
        return self._agent is None or self._agent.alive

    def stop(self) -> None:
        if self._agent is not None:
            self._agent.stop()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("RayProvisioner needs Ray. Install it: pip install ray") from None
    return ray
