"""Seats on any number of machines, given to rollouts in the order they ask.

Everything here runs on one loop. A machine that is lost takes its rollouts along, and them alone; the provisioner is
asked for its successor, and when one answers, the capacity is back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from benchmax import limits, retries
from benchmax.envs.logging import rollout_context
from benchmax.envs.mcp.agent.timings import Times
from benchmax.envs.mcp.agent_client import AgentLink, WrongSecret
from benchmax.envs.mcp.provisioners.base import BaseProvisioner
from benchmax.errors import BenchmaxError, McpError, UsageError

logger = logging.getLogger(__name__)

PIECE_BYTES = limits.MIB
CLOSE_SECONDS = 2.0
"""How long what is under way may take to end when the environment is shut down."""


@dataclass(frozen=True, slots=True)
class Health:
    """How patiently agents are waited for."""

    timeout: float = 5.0
    first_pause: float = 2.0
    longest_pause: float = 15.0
    attempts: int = 20
    growth: float = 2.0

    def pause(self, attempt: int) -> float:
        return retries.pause(attempt + 1, self.first_pause, self.longest_pause, growth=self.growth)


@dataclass(eq=False, slots=True)
class Machine:
    """One agent, and how many of its seats this pool has."""

    link: AgentLink
    capacity: int
    used: int = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used if self.link.failure is None else 0


@dataclass(eq=False, slots=True)
class Rollout:
    """A rollout's seat."""

    id: str
    machine: Machine
    token: str
    workspace: str
    claim: object = None
    """Whose request it answered."""
    lost: str | None = None
    """How its servers were lost, once they were."""


@dataclass(eq=False, slots=True)
class ServerPool:
    """Connects to the agents of a provisioner and shares out their seats."""

    provisioner: BaseProvisioner
    secret: str
    health: Health = Health()
    machines: list[Machine] = field(default_factory=list)
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    waits: Times = field(default_factory=Times)
    _waiters: deque[asyncio.Future[Machine]] = field(default_factory=deque)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _tokens: dict[str, Rollout] = field(default_factory=dict)
    _asking: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    """Rollouts that wait for a seat; each is done when its wait is over."""
    _transfers: Any = field(default_factory=lambda: itertools.count(1))
    _recovering: int = 0
    _failure: str | None = None
    _closed: bool = False

    async def open(self) -> None:
        """Provision, and connect to every agent; ready when the first answers."""
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
        """Connect to an agent, in as many attempts as health allows."""
        for attempt in range(self.health.attempts):
            link = AgentLink(address, self._noticed, self._lost)
            try:
                await link.connect(self.secret, self.health.timeout)
                break
            except McpError as error:
                if attempt + 1 == self.health.attempts or isinstance(error, WrongSecret):
                    raise
                await asyncio.sleep(self.health.pause(attempt))
        self.machines.append(Machine(link, int(link.hello.get("servers", 1))))
        self._failure = None
        self._share_out()

    @property
    def capacity(self) -> int:
        return sum(machine.capacity for machine in self.machines if machine.link.failure is None)

    # Seats

    async def acquire(self, rollout_id: str, seconds: float, claim: object = None) -> Rollout:
        """A seat of the rollout's own; McpError when there is none in time, or when it has one already."""
        while (other := self._asking.get(rollout_id)) is not None:
            await asyncio.wait([other])
        if rollout_id in self.rollouts:
            raise McpError(f"Rollout {rollout_id!r} has its MCP servers already. Release it first.")
        waiting = self._asking[rollout_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._acquire(rollout_id, seconds, claim)
        finally:
            del self._asking[rollout_id]
            waiting.set_result(None)

    async def give_up(self, rollout_id: str, claim: object) -> None:
        """Release a rollout whose request nobody waits for any more, if that is what it has its seat from."""
        rollout = self.rollouts.get(rollout_id)
        if rollout is not None and rollout.claim is claim:
            await self.release(rollout_id)

    async def _acquire(self, rollout_id: str, seconds: float, claim: object) -> Rollout:
        began = monotonic()
        failure: McpError | None = None
        for _ in range(len(self.machines) + 1):
            machine = await self._place(seconds - (monotonic() - began), seconds)
            try:
                left = max(1.0, seconds - (monotonic() - began))
                given = await machine.link.request("open", rollout=rollout_id, seconds=left)
            except BaseException as error:
                self._give_back(machine)
                if not isinstance(error, McpError) or not self._others(machine):
                    raise
                failure = error
                continue
            rollout = Rollout(rollout_id, machine, given["token"], given["workspace"], claim)
            self.rollouts[rollout_id] = self._tokens[rollout.token] = rollout
            self.waits.add(monotonic() - began)
            return rollout
        raise failure or McpError("No MCP server can be had. Try again.")

    def _others(self, machine: Machine) -> bool:
        return any(each is not machine and each.link.failure is None for each in self.machines)

    async def _place(self, left: float, seconds: float) -> Machine:
        if self._closed:
            raise McpError("The environment was shut down. Make a new one.")
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

    def rollout(self, rollout_id: str) -> Rollout:
        try:
            rollout = self.rollouts[rollout_id]
        except KeyError:
            raise McpError(f"Rollout {rollout_id!r} has no MCP servers. Call init_rollout first.") from None
        if rollout.lost is not None:
            raise McpError(rollout.lost)
        return rollout

    async def release(self, rollout_id: str) -> None:
        """Give a seat back; a rollout that has none is nothing to release."""
        rollout = self.rollouts.pop(rollout_id, None)
        if rollout is None:
            return
        self._tokens.pop(rollout.token, None)
        try:
            if rollout.machine.link.failure is None:
                await rollout.machine.link.request("close", token=rollout.token)
        except McpError:
            pass  # the machine was lost meanwhile, and the seat with it
        finally:
            self._give_back(rollout.machine)

    # What a rollout does with its seat

    async def call(self, rollout_id: str, name: str, arguments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        rollout = self.rollout(rollout_id)
        result: dict[str, Any] = await rollout.machine.link.request(
            "call", token=rollout.token, name=name, arguments=arguments, seconds=seconds
        )
        return result

    async def ask(self, rollout_id: str, what: str, **given: Any) -> Any:
        rollout = self.rollout(rollout_id)
        return await rollout.machine.link.request(what, token=rollout.token, **given)

    async def put(self, rollout_id: str, path: str, data: bytes) -> None:
        """Write a file in the rollout's workspace."""
        if len(data) > limits.MCP_FILE_BYTES:
            raise UsageError(f"A file may have {limits.MCP_FILE_BYTES:,} bytes; {path} has {len(data):,}. Split it.")
        transfer = next(self._transfers)
        for at in range(0, max(1, len(data)), PIECE_BYTES):
            piece, last = data[at : at + PIECE_BYTES], at + PIECE_BYTES >= len(data)
            await self.ask(rollout_id, "put", transfer=transfer, path=path, data=piece, last=last)

    async def get(self, rollout_id: str, path: str) -> bytes:
        """Read a file of the rollout's workspace."""
        pieces: list[bytes] = []
        taken, size = 0, 1
        while taken < size:
            answer = await self.ask(rollout_id, "get", path=path, offset=taken)
            if not answer["data"]:
                break
            pieces.append(answer["data"])
            taken, size = taken + len(answer["data"]), answer["size"]
        return b"".join(pieces)

    # All machines

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """The tools, as the first machine that answers lists them."""
        machine = next((each for each in self.machines if each.link.failure is None), None)
        if machine is None:
            raise McpError(self._failure or "No machine for MCP servers is left. Wait until one is back.")
        tools: list[dict[str, Any]] = await machine.link.request("tools", seconds=seconds)
        return tools

    async def warm(self, number: int | None, seconds: float) -> int:
        """Have this many seats ready, all of them if not told, spread over the machines."""
        alive = [machine for machine in self.machines if machine.link.failure is None]
        left = sum(machine.free for machine in alive) if number is None else number
        asked = []
        for index, machine in enumerate(alive):
            share = min(machine.free, -(-left // (len(alive) - index)))
            left -= share
            asked.append(machine.link.request("warm", number=share, seconds=seconds))
        return sum(await asyncio.gather(*asked))

    async def state(self) -> list[dict[str, Any]]:
        """Numbers of every machine."""

        async def one(machine: Machine) -> dict[str, Any]:
            about = {"address": machine.link.address, "capacity": machine.capacity, "used": machine.used}
            if machine.link.failure is not None:
                return {**about, "lost": machine.link.failure}
            return {**about, **await machine.link.request("state")}

        return list(await asyncio.gather(*map(one, self.machines)))

    # Loss

    def _noticed(self, message: dict[str, Any]) -> None:
        if "lost" in message and (rollout := self._tokens.get(message["lost"])) is not None:
            logger.warning("Rollout %s lost a server. %s", rollout.id, message["reason"])
        elif "log" in message:
            token, level, name, line = message["log"]
            rollout = self._tokens.get(token)
            if rollout is not None:
                with rollout_context(rollout.id):
                    logging.getLogger("benchmax.env").log(int(level), "%s: %s", name, line)

    def _lost(self, link: AgentLink) -> None:
        machine = next((each for each in self.machines if each.link is link), None)
        if machine is None or self._closed:
            return
        self.machines.remove(machine)
        for rollout in self.rollouts.values():
            if rollout.machine is machine:
                rollout.lost = link.failure
        logger.warning("%s", link.failure)
        self._keep(asyncio.ensure_future(link.close()))
        self._keep(asyncio.ensure_future(self._recover(link.address)))

    async def _recover(self, address: str) -> None:
        """Get the machine's successor. When none is left to hope for, those who wait are told."""
        self._recovering += 1
        failure: Exception = McpError("the provisioner has no other")
        try:
            for attempt in range(self.health.attempts):
                try:
                    successor = await self.provisioner.recover(address, self.secret)
                    if successor is None:
                        break
                    link = AgentLink(successor, self._noticed, self._lost)
                    await link.connect(self.secret, self.health.timeout)
                except (BenchmaxError, OSError, RuntimeError) as error:
                    failure = error
                    await asyncio.sleep(self.health.pause(attempt))
                    continue
                self.machines.append(Machine(link, int(link.hello.get("servers", 1))))
                self._share_out()
                return
        finally:
            self._recovering -= 1
            if not self.machines and not self._recovering:
                self._give_up(failure)

    def _give_up(self, failure: Exception) -> None:
        self._failure = f"Every machine for MCP servers is lost, and none came back: {failure}"
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(McpError(self._failure))

    async def close(self) -> None:
        self._closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(McpError("The environment was shut down. Make a new one."))
        self._waiters.clear()
        if tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        await asyncio.gather(*(machine.link.close() for machine in self.machines), return_exceptions=True)
        await self.provisioner.teardown()


def read_file(path: Path) -> bytes:
    """A file to be sent, within the limit."""
    size = path.stat().st_size
    if size > limits.MCP_FILE_BYTES:
        raise UsageError(f"A file may have {limits.MCP_FILE_BYTES:,} bytes; {path} has {size:,}. Split it.")
    return path.read_bytes()
