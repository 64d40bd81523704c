"""Leases servers on any number of machines to rollouts, in the order of their requests.

Everything here runs on one event loop. The loss of a machine ends its rollouts and no others; the provisioner is asked
for a successor, whose servers are leased as soon as it answers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from benchmax import limits, retries
from benchmax.cross_loop import settle
from benchmax.envs.logging import ENV_LOGGER, rollout_context
from benchmax.envs.mcp.agent_client import AgentClient, WrongSecret
from benchmax.envs.mcp.frame_socket import CHUNK_BYTES
from benchmax.envs.mcp.provisioners.base import BaseProvisioner
from benchmax.envs.rollout_state import not_begun
from benchmax.errors import BenchmaxError, McpError, UsageError
from benchmax.published import OlderPoolMethods

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
"""How long pending tasks may take to end when the environment is shut down."""
_SHUT_DOWN = "The environment was shut down. Make a new one."


@dataclass(frozen=True, slots=True)
class Health:
    """How often and how long the pool tries to reach an agent."""

    timeout: float = 5.0
    first_pause: float = 2.0
    longest_pause: float = 15.0
    attempts: int = 20
    growth: float = 2.0

    def pause(self, attempt: int) -> float:
        return retries.pause(attempt + 1, self.first_pause, self.longest_pause, growth=self.growth)


@dataclass(eq=False, slots=True)
class Machine:
    """The agent of one machine, and how many of its server sets this pool has leased."""

    agent: AgentClient
    capacity: int
    used: int = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used if self.agent.failure is None else 0


@dataclass(eq=False, slots=True)
class MachineLease:
    """A rollout's hold on servers of one machine."""

    id: str
    machine: Machine
    token: str
    workspace: str
    claim: object = None
    """Identifies the request that it answered."""
    lost: str | None = None
    """Why its servers are lost, if they are."""


@dataclass(eq=False, slots=True)
class ServerPool(OlderPoolMethods):
    """Connects to the agents of a provisioner and leases their servers."""

    provisioner: BaseProvisioner
    secret: str
    health: Health = Health()
    machines: list[Machine] = field(default_factory=list)
    leases: dict[str, MachineLease] = field(default_factory=dict)
    _waiters: deque[asyncio.Future[Machine]] = field(default_factory=deque)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _tokens: dict[str, MachineLease] = field(default_factory=dict)
    _asking: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    """Rollouts that wait for a lease; each future is done when the wait is over."""
    _transfers: Any = field(default_factory=lambda: itertools.count(1))
    _recovering: int = 0
    _failure: str | None = None
    _closed: bool = False
    _warned: bool = False

    async def open(self) -> None:
        """Provision, and connect to every agent; returns when the first answers."""
        addresses = await self.provisioner.provision_servers(self.secret)
        pending = {asyncio.ensure_future(self._join(address)) for address in addresses}
        failure: BaseException | None = None
        try:
            while pending and not self.machines:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                failure = next((task.exception() for task in done if task.exception()), failure)
        finally:
            for task in pending:
                self._keep(task)
        if not self.machines:
            await self.provisioner.teardown()
            raise failure or McpError("The provisioner gave no address. Give it machines.")

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("An MCP agent is missing: %s", error)

    async def _join(self, address: str) -> None:
        """Connect to an agent, in as many attempts as `health` allows."""
        for attempt in range(self.health.attempts):
            try:
                await self._connect(address)
                return
            except McpError as error:
                if attempt + 1 == self.health.attempts or isinstance(error, WrongSecret):
                    raise
                await asyncio.sleep(self.health.pause(attempt))

    async def _connect(self, address: str) -> None:
        agent = AgentClient(address, self._on_notice, self._on_lost)
        await agent.connect(self.secret, self.health.timeout)
        self.machines.append(Machine(agent, int(agent.hello.get("servers", 1))))
        if not agent.hello.get("boundary", True) and not self._warned:
            self._warned = True
            logger.warning(
                "MCP servers run without a boundary (%s). Run `benchmax doctor` for advice.", agent.hello["sandbox"]
            )
        self._failure = None
        self._share_out()

    @property
    def capacity(self) -> int:
        return sum(machine.capacity for machine in self._alive())

    def _alive(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.agent.failure is None]

    # Leases

    async def acquire(self, rollout_id: str, seconds: float, claim: object = None) -> MachineLease:
        """Lease servers to a rollout; McpError when none becomes free in time, or when it already has a lease."""
        while (other := self._asking.get(rollout_id)) is not None:
            await asyncio.wait([other])
        if rollout_id in self.leases:
            raise McpError(f"Rollout {rollout_id!r} has its MCP servers already. Release it first.")
        waiting = self._asking[rollout_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._acquire(rollout_id, seconds, claim)
        finally:
            del self._asking[rollout_id]
            waiting.set_result(None)

    async def abandon(self, rollout_id: str, claim: object) -> None:
        """Release a rollout whose caller was cancelled, if its lease answered that caller's request."""
        lease = self.leases.get(rollout_id)
        if lease is not None and lease.claim is claim:
            await self.release(rollout_id)

    async def _acquire(self, rollout_id: str, seconds: float, claim: object) -> MachineLease:
        began = monotonic()
        failure: McpError | None = None
        for _ in range(len(self.machines) + 1):
            machine = await self._next_machine(seconds - (monotonic() - began), seconds)
            try:
                left = max(1.0, seconds - (monotonic() - began))
                given = await machine.agent.request("open", rollout=rollout_id, seconds=left)
            except BaseException as error:
                self._give_back(machine)
                if not isinstance(error, McpError) or all(each is machine for each in self._alive()):
                    raise
                failure = error
                continue
            lease = MachineLease(rollout_id, machine, given["token"], given["workspace"], claim)
            self.leases[rollout_id] = self._tokens[lease.token] = lease
            return lease
        raise failure or McpError("No MCP server can be had. Try again.")

    async def _next_machine(self, left: float, seconds: float) -> Machine:
        if self._closed:
            raise McpError(_SHUT_DOWN)
        if self._failure is not None:
            raise McpError(self._failure)
        waiter: asyncio.Future[Machine] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._share_out()
        try:
            done, _ = await asyncio.wait([waiter], timeout=max(0.0, left))
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        if done:
            return waiter.result()
        self._withdraw(waiter)
        raise McpError(
            f"No MCP server became free within {seconds:g} s: all {self.capacity} are in use. "
            "Run fewer rollouts at once, or more servers."
        )

    def _withdraw(self, waiter: asyncio.Future[Machine]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.done() and waiter.exception() is None:
            self._give_back(waiter.result())

    def _give_back(self, machine: Machine) -> None:
        machine.used -= 1
        self._share_out()

    def _share_out(self) -> None:
        while self._waiters:
            machine = max(self.machines, key=lambda each: each.free, default=None)
            if machine is None or machine.free <= 0:
                return
            waiter = self._waiters.popleft()
            if not waiter.done():
                machine.used += 1
                waiter.set_result(machine)

    def lease(self, rollout_id: str) -> MachineLease:
        try:
            lease = self.leases[rollout_id]
        except KeyError:
            raise McpError(not_begun(rollout_id)) from None
        if lease.lost is not None:
            raise McpError(lease.lost)
        return lease

    async def release(self, rollout_id: str) -> None:
        """End a rollout's lease; does nothing when it has none."""
        lease = self.leases.pop(rollout_id, None)
        if lease is None:
            return
        self._tokens.pop(lease.token, None)
        try:
            if lease.machine.agent.failure is None:
                await lease.machine.agent.request("close", token=lease.token)
        except McpError:
            pass  # the machine was lost meanwhile
        finally:
            self._give_back(lease.machine)

    # What a rollout does with its servers

    async def ask(self, rollout_id: str, operation: str, /, **fields: Any) -> Any:
        """Run an operation of the agent for a rollout (agent/connection.py)."""
        lease = self.lease(rollout_id)
        return await lease.machine.agent.request(operation, token=lease.token, **fields)

    async def put(self, rollout_id: str, path: str, data: bytes) -> None:
        """Write a file in the rollout's workspace."""
        _check_size(path, len(data))
        transfer = next(self._transfers)
        for at in range(0, max(1, len(data)), CHUNK_BYTES):
            chunk, last = data[at : at + CHUNK_BYTES], at + CHUNK_BYTES >= len(data)
            await self.ask(rollout_id, "put", transfer=transfer, path=path, data=chunk, last=last)

    async def get(self, rollout_id: str, path: str) -> bytes:
        """Read a file of the rollout's workspace."""
        chunks: list[bytes] = []
        taken, size = 0, 1
        while taken < size:
            answer = await self.ask(rollout_id, "get", path=path, offset=taken)
            if not answer["data"]:
                break
            chunks.append(answer["data"])
            taken, size = taken + len(answer["data"]), answer["size"]
        return b"".join(chunks)

    # All machines

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """The tools that the first reachable machine lists."""
        alive = self._alive()
        if not alive:
            raise McpError(self._failure or "No machine for MCP servers is left. Wait until one is back.")
        tools: list[dict[str, Any]] = await alive[0].agent.request("tools", seconds=seconds)
        return tools

    async def warm(self, number: int | None, seconds: float) -> int:
        """Start this many server sets, by default all, spread over the machines; returns how many are ready."""
        alive = self._alive()
        left = sum(machine.free for machine in alive) if number is None else number
        starting = []
        for index, machine in enumerate(alive):
            share = min(machine.free, -(-left // (len(alive) - index)))
            left -= share
            starting.append(machine.agent.request("warm", number=share, seconds=seconds))
        return sum(await asyncio.gather(*starting))

    async def state(self) -> list[dict[str, Any]]:
        """The state of every machine."""

        async def one(machine: Machine) -> dict[str, Any]:
            about = {"address": machine.agent.address, "capacity": machine.capacity, "used": machine.used}
            if machine.agent.failure is not None:
                return {**about, "lost": machine.agent.failure}
            return {**about, **await machine.agent.request("state")}

        return list(await asyncio.gather(*map(one, self.machines)))

    # Loss

    def _on_notice(self, message: dict[str, Any]) -> None:
        if "lost" in message and (lease := self._tokens.get(message["lost"])) is not None:
            logger.warning("Rollout %s lost a server. %s", lease.id, message["reason"])
        elif "log" in message:
            token, level, name, line = message["log"]
            lease = self._tokens.get(token)
            if lease is not None:
                with rollout_context(lease.id):
                    logging.getLogger(ENV_LOGGER).log(int(level), "%s: %s", name, line)

    def _on_lost(self, agent: AgentClient) -> None:
        machine = next((each for each in self.machines if each.agent is agent), None)
        if machine is None or self._closed:
            return
        self.machines.remove(machine)
        for lease in self.leases.values():
            if lease.machine is machine:
                lease.lost = agent.failure
        logger.warning("%s", agent.failure)
        self._keep(asyncio.ensure_future(agent.close()))
        self._keep(asyncio.ensure_future(self._recover(agent.address)))

    async def _recover(self, address: str) -> None:
        """Connect to the machine's successor. Those who wait are refused when no machine is left."""
        self._recovering += 1
        failure: Exception = McpError("the provisioner has no other")
        try:
            for attempt in range(self.health.attempts):
                try:
                    successor = await self.provisioner.recover(address, self.secret)
                    if successor is None:
                        break
                    await self._connect(successor)
                    return
                except (BenchmaxError, OSError, RuntimeError) as error:
                    failure = error
                    await asyncio.sleep(self.health.pause(attempt))
        finally:
            self._recovering -= 1
            if not self.machines and not self._recovering:
                self._failure = f"Every machine for MCP servers is lost, and none came back: {failure}"
                self._refuse_waiters(self._failure)

    def _refuse_waiters(self, reason: str) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            settle(waiter, None, McpError(reason))

    async def close(self) -> None:
        self._closed = True
        self._refuse_waiters(_SHUT_DOWN)
        if tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        await asyncio.gather(*(machine.agent.close() for machine in self.machines), return_exceptions=True)
        await self.provisioner.teardown()


def _check_size(path: str | Path, size: int) -> None:
    if size > limits.MCP_FILE_BYTES:
        raise UsageError(f"A file may have {limits.MCP_FILE_BYTES:,} bytes; {path} has {size:,}. Split it.")


def read_file(path: Path) -> bytes:
    """The content of a file, UsageError when it is over the limit."""
    _check_size(path, path.stat().st_size)
    return path.read_bytes()
