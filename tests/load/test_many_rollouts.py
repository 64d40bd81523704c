"""Many rollouts at once: they finish, they do not wait for one another, and they stay small."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import pytest

from benchmax import BaseEnv, ToolCall, ToolDefinition, make_example
from benchmax.models.http import HttpModel
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, RolloutSettings, run_batch, run_rollout
from benchmax.testing import FakeModelServer

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "rollouts.py"


class Echo(BaseEnv):
    """One tool, which waits as it is told."""

    def __init__(self, pause=None):
        super().__init__()
        self.pause = pause

    async def list_tools(self):
        return [ToolDefinition("echo", "Echo.", {"type": "object", "properties": {"n": {"type": "integer"}}})]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        if self.pause and (waiting := self.pause()):
            await waiting
        return str(tool_args["n"])

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(messages[-1]["content"] == "done")}


def examples(count):
    return [make_example([{"role": "user", "content": f"Example {i}"}], {"i": i}) for i in range(count)]


def script(turns):
    return [ToolCall("echo", f'{{"n": {i}}}') for i in range(turns - 1)] + ["done"]


class LagMeter:
    """How long a loop works between two looks at its timers, in processor time: others' work is not its fault."""

    def __init__(self):
        self.lags = []

    async def __aenter__(self):
        self._task = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, *failure):
        self._task.cancel()

    async def _measure(self):
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.01)
            self.lags.append(time.thread_time() - began)

    @property
    def p99(self):
        return sorted(self.lags)[int(len(self.lags) * 0.99)]


async def test_256_rollouts_of_4_turns_against_a_slow_server():
    """L1: the time is the server's (4 × 0.1 to 0.3 s), not ours.

    The server lives on this loop too, so its answers come at different times, as those of a real one do: 256 at the
    same instant would measure the fake. It answers nobody before all have asked.
    """
    chance, all_asked = random.Random(1), asyncio.Event()

    async def answer(request):
        if server.requests >= 256:
            all_asked.set()
        await all_asked.wait()
        await asyncio.sleep(chance.uniform(0.1, 0.3))
        done = sum(message["role"] == "tool" for message in request["messages"])
        if done == 3:
            return "done"
        function = {"name": "echo", "arguments": f'{{"n": {done}}}'}
        return {"tool_calls": [{"id": f"c{done}", "type": "function", "function": function}]}

    gc.collect()
    gc.freeze()  # what other tests left behind is not ours to walk through
    async with (
        FakeModelServer(answer) as server,
        HttpModel("any", server.base_url) as model,
        EnvHost(Echo) as host,
        LagMeter() as meter,
    ):
        began, busy = time.monotonic(), time.process_time()
        rollouts = await run_batch(host, examples(256), model, concurrency=256)
        assert time.monotonic() - began < 60  # 200 s, one after another
        busy = time.process_time() - busy
        assert busy < 9
    gc.unfreeze()
    assert [rollout.reward for rollout in rollouts] == [1.0] * 256
    assert {rollout.turns for rollout in rollouts} == {4}
    assert server.requests == 1024
    assert server.max_in_flight == 256
    assert 0 < meter.p99 < busy / 2, "never all at a stretch"


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_sleeping_tools_of_different_rollouts_overlap(kind):
    """64 tools take as long as one: each ends when all have begun."""
    env, model = Echo(), ScriptedModel(script(2))
    meeting = asyncio.Barrier(64) if kind == "async" else threading.Barrier(64, timeout=60)
    env.pause = (lambda: asyncio.sleep(0.05)) if kind == "async" else (lambda: time.sleep(0.05))
    async with EnvHost(env) as host:
        await run_batch(host, examples(64), model, concurrency=64)  # where a tool that blocks is found out
        env.pause = meeting.wait if kind == "async" else (lambda: meeting.wait() and None)
        rollouts = await run_batch(host, examples(64), model, concurrency=64)
    assert all(rollout.ok and rollout.tool_events[0].ok for rollout in rollouts)


async def test_a_late_turn_costs_what_an_early_one_does():
    settings = RolloutSettings(max_turns=100, max_tool_calls=100)
    early, late = [], []
    async with EnvHost(Echo) as host:
        for example in examples(12):
            stamps = []

            def on_turn(rollout, new, stamps=stamps):
                stamps.append(time.process_time())

            rollout = await run_rollout(host, example, ScriptedModel(script(100)), settings, on_turn=on_turn)
            assert (rollout.ok, rollout.turns, len(rollout.messages)) == (True, 100, 200)
            early += [b - a for a, b in zip(stamps[4:24:2], stamps[6:26:2], strict=True)]
            late += [b - a for a, b in zip(stamps[170:190:2], stamps[172:192:2], strict=True)]
    assert median(late) < 2 * median(early)


async def test_a_scripted_rollout_of_5_turns_costs_little():
    """The bar is 0.5 ms, and `make bench` holds it; more is allowed here, for a slower processor."""
    model = ScriptedModel(script(5))
    async with EnvHost(Echo) as host:
        spent = []
        for _ in range(4):
            began = time.process_time()
            rollouts = await run_batch(host, examples(256), model, concurrency=64)
            spent.append((time.process_time() - began) / 256)
    assert all(rollout.ok and rollout.turns == 5 for rollout in rollouts)
    assert min(spent) < 0.002


def open_at_once(count):
    """In a process of its own: memory once used stays with a process and would hide the growth."""
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARK.parent)!r})\n"
        f"import asyncio, json, rollouts\njson.dump(asyncio.run(rollouts.crowd({count})), sys.stdout)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    return json.loads(ran.stdout)


def test_2000_rollouts_open_at_once():
    """`crowd` ends with an error unless every rollout played all its turns and was scored."""
    assert open_at_once(2_000)["kb"] < 25


@pytest.mark.slow
def test_10000_rollouts_open_at_once():
    assert open_at_once(10_000)["kb"] < 20
