"""The event loop that environments share between the loops of their callers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from benchmax.envs.io_loop import IoLoop
from benchmax.envs.logging import current_rollouts, rollout_context
from benchmax.errors import SandboxError


@pytest.fixture
def io():
    loop = IoLoop("test-io", SandboxError)
    yield loop
    loop.stop()


async def test_the_thread_starts_with_the_first_call(io):
    assert not io.runs

    async def where():
        return threading.current_thread().name

    assert await io.run(where) == "test-io"
    assert io.runs


async def test_work_belongs_to_the_rollout_of_its_caller(io):
    async def rollouts():
        await asyncio.sleep(0)
        return current_rollouts()

    async def caller(name):
        with rollout_context(name):
            return await io.run(rollouts)

    names = [f"r{number}" for number in range(20)]
    assert await asyncio.gather(*map(caller, names)) == [(name,) for name in names]


async def test_a_call_that_has_not_begun_when_it_stops_is_told(io):
    async def work():
        return 1

    assert await io.run(work) == 1
    waiting = asyncio.create_task(io.run(work))
    await asyncio.sleep(0)  # the call is queued; the loop learns of it after this iteration
    io.stop()
    with pytest.raises(SandboxError, match="meanwhile"):
        await asyncio.wait_for(waiting, 5)


async def test_who_waits_when_it_stops_is_told(io):
    begun = threading.Event()

    async def endless():
        begun.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(io.run(endless))
    await asyncio.to_thread(begun.wait)
    await asyncio.to_thread(io.stop)
    with pytest.raises(SandboxError, match="meanwhile"):
        await waiting
    with pytest.raises(SandboxError, match="shut down"):
        await io.run(endless)
    io.begin(endless)
    assert io.loop.is_closed()
