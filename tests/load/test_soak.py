"""A long time under load changes nothing: as quick at the end as at the beginning, and no larger (L3)."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import aclosing, contextmanager
from typing import NamedTuple

import psutil
import pytest

from benchmax import BaseEnv, make_example
from benchmax.models.http import HttpModel
from benchmax.rollouts import EnvHost
from benchmax.rollouts.groups import run_groups

SECONDS = float(os.environ.get("BENCHMAX_SOAK_SECONDS", "1200"))
IN_FLIGHT = 64
EVERY_SECONDS = 2.0

SERVER = """
import asyncio
import sys
from benchmax.testing import FakeModelServer

async def answer(request):
    await asyncio.sleep(0.005)
    return "four"

async def main():
    async with FakeModelServer(answer) as server:
        print(server.base_url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class Echo(BaseEnv):
    async def init_rollout(self, rollout_id, **kwargs):
        pass

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(messages[-1]["content"] == "four")}


class Sample(NamedTuple):
    at: float
    busy: float
    """Processor time so far."""
    done: int
    memory: int
    files: int
    threads: int


@contextmanager
def model_server():
    words = [sys.executable, "-c", SERVER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.wait(30)


def endless():
    number = 0
    while True:
        number += 1
        yield make_example([{"role": "user", "content": f"2 + 2? ({number})"}], {"n": number})


def look(began, done):
    process = psutil.Process()
    memory, files = process.memory_info().rss, process.num_fds()
    return Sample(time.monotonic() - began, time.process_time(), done, memory, files, threading.active_count())


def slope(samples):
    """Bytes a minute, by least squares."""
    at = [each.at / 60 for each in samples]
    size = [float(each.memory) for each in samples]
    middle, mean = sum(at) / len(at), sum(size) / len(size)
    spread = sum((one - middle) ** 2 for one in at)
    return sum((one - middle) * (two - mean) for one, two in zip(at, size, strict=True)) / spread


def cost(samples):
    """Processor seconds for a thousand rollouts: other programs take time, and not this."""
    return (samples[-1].busy - samples[0].busy) / (samples[-1].done - samples[0].done) * 1000


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
async def test_sixty_four_in_flight_for_twenty_minutes(capsys):
    samples, done = [], 0
    gc.collect()
    with model_server() as url:
        async with HttpModel("any", url) as model, EnvHost(Echo) as host:
            began = told = time.monotonic()
            async with aclosing(run_groups(host, endless(), model, concurrency=IN_FLIGHT)) as groups:
                async for group in groups:
                    assert all(rollout.ok for rollout in group)
                    done += len(group)
                    if time.monotonic() - told > EVERY_SECONDS:
                        told = time.monotonic()
                        samples.append(look(began, done))
                    if time.monotonic() - began > SECONDS:
                        break
            await asyncio.sleep(0)
    part = max(3, len(samples) // 20)
    warm = samples[part:]
    first, last = warm[: part + 1], warm[-part - 1 :]
    with capsys.disabled():
        print(
            f"\nsoak: {done:,} rollouts in {SECONDS:.0f} s, {IN_FLIGHT} in flight; {cost(first):.2f} s of processor "
            f"for a thousand, then {cost(last):.2f}; {slope(warm) / 1e6:+.2f} MB a minute; files {warm[0].files} → "
            f"{warm[-1].files}, threads {warm[0].threads} → {warm[-1].threads}"
        )
    assert cost(last) <= cost(first) / 0.9
    assert slope(warm) < 1e6 or SECONDS < 300  # a minute is too short to tell
    assert abs(warm[-1].files - warm[0].files) <= 5
    assert abs(warm[-1].threads - warm[0].threads) <= 5
    assert done >= 80 * SECONDS * 0.5
