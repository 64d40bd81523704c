"""Turns start in rounds: always in the same order, never held up for long, never for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from benchmax.errors import ModelUnavailable
from benchmax.trainer.sampling import round_barrier
from benchmax.trainer.sampling.round_barrier import RoundBarrier


class Engine:
    """Takes turns down in the order they come; `call` blocks its thread as the real one does."""

    def __init__(self, closed: bool = False) -> None:
        self.turns: list[tuple[int, int]] = []
        self.closed = closed

    def call(self, action):
        if self.closed:
            raise ModelUnavailable("The engine is closed.")
        action()


@pytest.fixture(autouse=True)
def endless_patience(monkeypatch):
    """Who comes late is waited for: a slow machine makes everybody late."""
    monkeypatch.setattr(round_barrier, "LATE_SECONDS", 3600)


async def play(barrier, engine, place, pauses):
    """A rollout: a pause before each turn, then it leaves."""
    for pause in pauses:
        await asyncio.sleep(pause)
        async with barrier.turn(place):
            engine.turns.append(place)
            await asyncio.sleep(0)
    barrier.leave()


async def test_each_round_is_in_order_whoever_comes_first():
    engine = Engine()
    async with RoundBarrier(engine, 3) as barrier, asyncio.TaskGroup() as tasks:
        tasks.create_task(play(barrier, engine, (2, 0), [0.0, 0.02, 0.0]))
        tasks.create_task(play(barrier, engine, (1, 0), [0.01, 0.0]))
        tasks.create_task(play(barrier, engine, (0, 5), [0.02, 0.01, 0.01]))
    assert engine.turns == [(0, 5), (1, 0), (2, 0), (0, 5), (1, 0), (2, 0), (0, 5), (2, 0)]


async def test_who_takes_too_long_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(round_barrier, "LATE_SECONDS", 0.02)
    engine, slow = Engine(), asyncio.Event()
    async with RoundBarrier(engine, 3) as barrier, asyncio.TaskGroup() as tasks:

        async def late():
            await slow.wait()
            await play(barrier, engine, (0, 0), [0.0, 0.0])

        tasks.create_task(late())
        quick = [tasks.create_task(play(barrier, engine, (number, 0), [0.0, 0.0])) for number in (2, 1)]
        await asyncio.gather(*quick)
        assert engine.turns == [(1, 0), (2, 0)] * 2
        slow.set()
    assert engine.turns[4:] == [(0, 0)] * 2


async def test_a_late_one_joins_a_round_that_runs(monkeypatch):
    monkeypatch.setattr(round_barrier, "LATE_SECONDS", 0.01)
    engine, running, done = Engine(), asyncio.Event(), asyncio.Event()
    async with RoundBarrier(engine, 2) as barrier, asyncio.TaskGroup() as tasks:

        async def long():
            async with barrier.turn((1, 0)):
                running.set()
                await done.wait()
            barrier.leave()

        tasks.create_task(long())
        await running.wait()
        await asyncio.wait_for(play(barrier, engine, (0, 0), [0.0]), 60)
        done.set()
    assert engine.turns == [(0, 0)]


async def test_time_in_which_the_whole_process_stood_still_does_not_count(monkeypatch):
    monkeypatch.setattr(round_barrier, "LATE_SECONDS", 1.0)
    engine = Engine()
    async with RoundBarrier(engine, 2) as barrier, asyncio.TaskGroup() as tasks:

        async def stalled():
            time.sleep(1.1)  # everything stands still, as when the process is stopped
            await play(barrier, engine, (0, 0), [0.2])

        tasks.create_task(play(barrier, engine, (1, 0), [0.0]))
        await asyncio.sleep(0.01)
        tasks.create_task(stalled())
    assert engine.turns == [(0, 0), (1, 0)]


@pytest.mark.parametrize("members", [0, 2])
async def test_no_barrier_and_a_closed_engine_let_everybody_pass(members):
    engine = Engine(closed=True)
    async with RoundBarrier(engine, members) as barrier:
        await asyncio.gather(*(play(barrier, engine, (number, 0), [0.0]) for number in range(2)))
    assert engine.turns == [(0, 0), (1, 0)]


async def test_a_cancelled_rollout_is_not_waited_for():
    engine = Engine()
    async with RoundBarrier(engine, 3) as barrier:
        gone = asyncio.create_task(play(barrier, engine, (0, 0), [0.0]))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.wait([gone])
        barrier.leave()
        await asyncio.wait_for(asyncio.gather(*(play(barrier, engine, (n, 0), [0.0, 0.0]) for n in (1, 2))), 60)
    assert engine.turns == [(1, 0), (2, 0)] * 2
