"""No lease is lost, in whichever moment a rollout is cancelled and however many ask for the same."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmax.envs.mcp.agent_client import AgentClient
from benchmax.envs.mcp.env import ParallelMcpEnv
from benchmax.envs.mcp.pool import Health, Machine
from benchmax.envs.mcp.provisioners import ManualProvisioner
from benchmax.envs.remote.wire import Frames
from benchmax.errors import McpError

LEASES = 8


class Agent(AgentClient):
    """A connection to an agent that answers in its own time, and counts the leases it has given."""

    def __init__(self) -> None:
        super().__init__("nowhere", lambda message: None, lambda agent: None)
        self.held: set[str] = set()
        self.most = 0
        self.closed_twice = 0
        self._frames = Frames()
        self._granting: dict[int, asyncio.TimerHandle | asyncio.Handle] = {}
        self._random = random.Random(7)

    def _post(self, frame: bytes) -> None:
        for message in self._frames.feed(frame):
            self._ticks(self._random.randrange(3), self._obey, message)

    def _ticks(self, number: int, what: Callable[..., Any], *given: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._ticks, number - 1, what, *given) if number else loop.call_soon(what, *given)

    def _obey(self, message: dict[str, Any]) -> None:
        if "cancel" in message:
            return  # it had been granted already; had it not, nothing would be lost
        if message["op"] == "open":
            token = f"token-{message['id']}"
            self.held.add(token)
            self.most = max(self.most, len(self.held))
            given = {"token": token, "workspace": "/nowhere"}
            self._ticks(self._random.randrange(3), self._received, {"id": message["id"], "ok": given})
        elif message["op"] == "close":
            self.closed_twice += message["token"] not in self.held
            self.held.discard(message["token"])
            self._ticks(self._random.randrange(2), self._received, {"id": message["id"], "ok": None})


@pytest.fixture
async def env() -> Any:
    made = ParallelMcpEnv.__new__(ParallelMcpEnv)
    made._set_up(ManualProvisioner(["127.0.0.1:1"]), "secret", None, None, Health())

    async def join() -> None:
        made._pool.machines.append(Machine(Agent(), LEASES))
        made._opening = asyncio.ensure_future(asyncio.sleep(0))

    await made._io.run(join)
    yield made
    await made.shutdown()


async def settled(env: Any) -> Agent:
    """When nothing is under way any more."""
    machine = env._pool.machines[0]
    until = time.monotonic() + 60
    while (machine.used or machine.agent.held) and time.monotonic() < until:
        await env._io.run(lambda: asyncio.sleep(0.002))
    assert isinstance(machine.agent, Agent)
    return machine.agent


async def test_thousands_of_rollouts_cancelled_at_every_moment_lose_no_lease(env: Any) -> None:
    chance = random.Random(3)

    async def play(number: int) -> None:
        starting = asyncio.ensure_future(env.init_rollout(f"r{number}"))
        for _ in range(chance.randrange(25)):
            await asyncio.sleep(0 if chance.random() < 0.7 else 0.0002)
        if not starting.done():
            starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await env.release_rollout(f"r{number}")

    for batch in range(100):
        await asyncio.gather(*(play(batch * 30 + each) for each in range(30)))
    agent = await settled(env)
    assert not agent.held
    assert env._pool.machines[0].used == 0
    assert env._pool.leases == {}
    assert env._pool._tokens == {}
    assert agent.closed_twice == 0
    assert agent.most <= LEASES + 30


async def test_an_answer_that_comes_with_the_cancellation_is_given_back(env: Any) -> None:
    async def both() -> None:
        agent = env._pool.machines[0].agent
        asking = asyncio.ensure_future(agent.request("open", rollout="a", seconds=1.0))
        while not agent._waiting or not (future := next(iter(agent._waiting.values()))).done():
            await asyncio.sleep(0)
        assert future.done()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    await env._io.run(both)
    assert not (await settled(env)).held


async def test_two_at_once_for_one_rollout_take_one_lease(env: Any) -> None:
    for number in range(300):
        name = f"r{number}"
        said = await asyncio.gather(*(env.init_rollout(name) for _ in range(3)), return_exceptions=True)
        assert sorted(type(each).__name__ for each in said) == ["McpError", "McpError", "NoneType"]
        assert "already" in str(next(each for each in said if isinstance(each, McpError)))
        assert env._pool.machines[0].used == 1
        await env.release_rollout(name)
    assert not (await settled(env)).held


async def test_a_second_that_waits_goes_on_when_the_first_is_cancelled(env: Any) -> None:
    for number in range(300):
        name = f"r{number}"
        first = asyncio.ensure_future(env.init_rollout(name))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(env.init_rollout(name))
        first.cancel()
        said = await asyncio.gather(first, second, return_exceptions=True)
        held = env._pool.leases.get(name)
        assert (held is None) == (said[1] is not None)
        await env.release_rollout(name)
    assert not (await settled(env)).held
