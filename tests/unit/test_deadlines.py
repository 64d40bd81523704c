"""`deadline` does what asyncio.timeout does."""

from __future__ import annotations

import asyncio
import time

import pytest

from benchmax.deadlines import deadline, shared_timer


async def test_what_takes_too_long_is_cancelled():
    began = time.monotonic()
    with pytest.raises(TimeoutError), deadline(0.05) as timer:
        await asyncio.sleep(3600)
    assert timer.expired
    assert time.monotonic() - began > 0.04
    assert asyncio.current_task().cancelling() == 0


async def test_what_ends_in_time_is_left_alone():
    with deadline(10) as timer:
        await asyncio.sleep(0)
    assert not timer.expired
    assert not shared_timer(10)._due


async def test_each_wait_has_its_whole_time():
    """A later wait is not ended with the earlier ones whose timer it shares."""
    order = []

    async def wait(name, pause):
        await asyncio.sleep(pause)
        with pytest.raises(TimeoutError), deadline(0.1):
            await asyncio.sleep(10)
        order.append((name, time.monotonic()))

    began = time.monotonic()
    await asyncio.gather(wait("second", 0.06), wait("first", 0.0), wait("first", 0.0))
    assert [name for name, _ in order] == ["first", "first", "second"]
    assert order[0][1] - began > 0.09
    assert order[2][1] - began > 0.15


async def test_the_inner_of_two_ends_first_and_the_outer_goes_on():
    with deadline(10) as outer:
        with pytest.raises(TimeoutError), deadline(0.02):
            await asyncio.sleep(10)
        await asyncio.sleep(0)
    assert not outer.expired


async def test_the_outer_of_two_ends_the_inner():
    with pytest.raises(TimeoutError), deadline(0.02) as outer, deadline(10) as inner:
        await asyncio.sleep(10)
    assert (outer.expired, inner.expired) == (True, False)


async def test_a_cancellation_from_outside_stays_one():
    async def work():
        with deadline(10):
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_at_the_same_moment_goes_first():
    async def work():
        with deadline(0.01) as timer:
            task = asyncio.current_task()
            while not timer.expired:
                try:
                    await asyncio.sleep(0.005)
                except asyncio.CancelledError:
                    task.cancel()  # somebody else's, before ours was handled
                    raise

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


async def test_an_error_inside_is_not_hidden():
    with pytest.raises(ZeroDivisionError), deadline(1):
        _ = 1 / 0


def test_a_second_loop_in_the_same_thread_has_its_own():
    async def late():
        with pytest.raises(TimeoutError), deadline(0.01):
            await asyncio.sleep(10)

    asyncio.run(late())
    asyncio.run(late())
