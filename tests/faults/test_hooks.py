"""User code that blocks, hangs, dies or is cancelled never hurts anyone but its own rollout."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections import Counter
from decimal import Decimal

import pytest

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, RolloutSettings, Termination, run_batch, run_group, run_rollout
from benchmax.rollouts.processor_wait import ProcessorWait


def examples(n, **task):
    return [make_example([{"role": "user", "content": f"question {i}"}], {"i": i, **task}) for i in range(n)]


class LagMeter:
    """How much of the time the event loop was held: late by over half a second without computing itself."""

    async def __aenter__(self):
        self._held = 0.0
        self._began = time.monotonic()
        self._task = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.share = self._held / (time.monotonic() - self._began)

    async def _measure(self):
        while True:
            began, busy = time.monotonic(), time.thread_time()
            await asyncio.sleep(0.01)
            late = time.monotonic() - began - 0.01 - (time.thread_time() - busy)
            self._held += late if late > 0.5 else 0.0


class Rewarding(BaseEnv):
    """compute_reward does what the task says, never in the thread of the caller's loop."""

    async def compute_reward(self, rollout_id, messages, task, **kw):
        assert threading.current_thread() is not threading.main_thread()
        return await self.reward(task["i"])


async def batch(env, n, *, concurrency=256, **settings):
    async with EnvHost(env) as host:
        rollouts = await run_batch(
            host, examples(n), ScriptedModel("x"), RolloutSettings(**settings), concurrency=concurrency
        )
    return sorted(rollouts, key=lambda r: r.task["i"])


async def test_two_thousand_rewards_some_slow_some_raising():
    """L6: one in ten blocks for a second, one in a hundred raises."""

    class Mixed(Rewarding):
        async def reward(self, i):
            if i % 100 == 7:
                raise ValueError("unlucky")
            if i % 10 == 0:
                time.sleep(1.0)
            return {"x": 1.0}

    began = time.monotonic()
    rollouts = await batch(Mixed, 2000, concurrency=1000)
    assert len(rollouts) == 2000
    assert [r.task["i"] for r in rollouts if r.reward is None] == list(range(7, 2000, 100))
    assert sum(r.reward or 0 for r in rollouts) == 1980
    assert time.monotonic() - began < 80  # 200 s, were they to wait for one another


@pytest.mark.parametrize(
    "style", ["spin", "swallow", *(pytest.param(each, marks=pytest.mark.slow) for each in ("sleep", "lock"))]
)
async def test_a_hung_reward_costs_its_own_rollout_only(style, monkeypatch):
    """F12: cut at its limit, unscored with a reason, the loop stays free."""
    monkeypatch.setattr(limits, "STALL_SECONDS", 1.0)

    class Hung(Rewarding):
        async def reward(self, i):
            if i == 3:
                await self.hang()
            return {"x": float(i)}

        async def hang(self):
            if style == "spin":
                while True:
                    pass
            if style == "sleep":
                time.sleep(60)
            if style == "lock":
                lock = threading.Lock()
                lock.acquire()
                lock.acquire(timeout=60)
            while True:  # ignores cancellation
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)

    began = time.monotonic()
    async with LagMeter() as meter:
        rollouts = await batch(Hung, 12, reward_seconds=3.0)
    assert time.monotonic() - began < 45  # it hangs for 60 s, or for ever
    assert [r.reward for r in rollouts if r.task["i"] != 3] == [float(i) for i in range(12) if i != 3]
    hung = rollouts[3]
    assert hung.reward is None
    assert hung.termination is Termination.REWARD_ERROR
    assert "DeadlineExceeded: compute_reward " in hung.unscored["reward"], "which hook it was"
    assert meter.share < 0.5


async def test_plain_def_hooks_run_in_threads_at_once():
    everyone = threading.Barrier(64)

    class Plain(BaseEnv):
        def compute_reward(self, rollout_id, messages, task, **kw):
            assert threading.current_thread() is not threading.main_thread()
            everyone.wait(60)  # fewer at once never end
            return {"x": 1.0}

    rollouts = await batch(Plain, 64)
    assert all(r.reward == 1.0 for r in rollouts)


async def test_an_abandoned_coroutine_of_a_wrapped_hook_is_cancelled_and_leaves_its_thread():
    ended = []

    def wrapped(hook):
        @functools.wraps(hook)
        def call(*args, **kwargs):  # a plain function to whoever looks at it
            return hook(*args, **kwargs)

        return call

    class Waits(BaseEnv):
        @wrapped
        async def compute_reward(self, rollout_id, messages, task, **kw):
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(threading.current_thread())

    class Spins(BaseEnv):
        @wrapped
        async def compute_reward(self, rollout_id, messages, task, **kw):
            ended.append(threading.current_thread())
            while True:
                pass

    for env, most in ((Waits, 8), (Spins, 1)):
        ended.clear()
        async with EnvHost(env) as host:
            settings = RolloutSettings(reward_seconds=0.5)
            rollouts = await run_batch(host, examples(most), ScriptedModel("x"), settings)
            assert all(rollout.error.type == "DeadlineExceeded" for rollout in rollouts)
            async with asyncio.timeout(30):
                while len(ended) < most or any(thread.is_alive() for thread in ended):
                    await asyncio.sleep(0.01)


async def test_blocking_tools_of_different_rollouts_do_not_wait_for_one_another():
    together, everyone = threading.Event(), threading.Barrier(32)

    class Blocking(BaseEnv):
        async def list_tools(self):
            return [ToolDefinition("nap", "Sleeps.")]

        async def run_tool(self, rollout_id, tool_name, **kw):
            if together.is_set():
                everyone.wait(60)  # fewer at once never end
            else:
                time.sleep(0.1)
            return "ok"

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"x": 1.0}

    model = ScriptedModel([ToolCall("nap", "{}", "c")] * 3 + ["done"])
    async with EnvHost(Blocking) as host:
        await run_batch(host, examples(1), model)  # the first call is enough to know
        assert "run_tool:nap" in host.blocking_hooks
        together.set()
        rollouts = await run_batch(host, examples(32), model)
    assert all(r.ok for r in rollouts)
    assert all(event.ok for r in rollouts for event in r.tool_events)


async def test_a_hook_that_waits_for_the_processor_does_not_block(monkeypatch):
    class Preempted(Rewarding):
        async def reward(self, i):
            time.sleep(2 * limits.BLOCKING_SECONDS)
            return {"x": 1.0}

    async def blocks():
        async with EnvHost(Preempted) as host:
            await run_batch(host, examples(4), ScriptedModel("x"))
            return bool(host.blocking_hooks)

    assert await blocks()
    monkeypatch.setattr(ProcessorWait, "waited", lambda self: 60.0)  # all the time that it took, however long that was
    assert not await blocks()


async def test_many_short_blocks_are_noticed_and_no_innocent_is_given_up():
    """800 calls of 25 ms one after another took 20 s, and the watch mistook their queue for one hung call."""

    class Short(Rewarding):
        async def reward(self, i):
            time.sleep(0.025)
            return {"x": 1.0}

    began = time.monotonic()
    rollouts = await batch(Short, 800)
    assert all(r.reward == 1.0 for r in rollouts)
    assert time.monotonic() - began < 13


async def test_a_queue_of_short_calls_that_must_stay_is_not_a_stall(monkeypatch):
    monkeypatch.setattr(limits, "STALL_SECONDS", 1.5)

    class Staying(Rewarding):
        async def reward(self, i):
            await asyncio.sleep(0)
            time.sleep(0.02)
            return {"x": 1.0}

    rollouts = await batch(Staying, 150)
    assert all(r.reward == 1.0 for r in rollouts)


async def test_hooks_that_await_stay_on_one_loop():
    class Bound(BaseEnv):
        def __init__(self):
            self.loops = set()
            self.lock = asyncio.Lock()

        async def init_rollout(self, rollout_id, **kw):
            await asyncio.sleep(0)
            self.loops.add(asyncio.get_running_loop())

        async def compute_reward(self, rollout_id, messages, task, **kw):
            async with self.lock:
                self.loops.add(asyncio.get_running_loop())
                await asyncio.sleep(0)
                time.sleep(0.06)
            return {"x": float(len(self.loops))}

    rollouts = await batch(Bound, 8)
    assert [r.reward for r in rollouts] == [1.0] * 8


BAD = {
    "nan": float("nan"), "inf": float("-inf"), "none": None, "text": "1", "decimal": Decimal(1), "dict": {"a": 1},
    "list": [1.0], "object": object(),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*BAD, "coroutine", "generator", "not a dict", "empty"])
async def test_values_that_are_no_rewards_leave_the_sample_unscored(kind):
    """B7."""

    class Odd(Rewarding):
        async def reward(self, i):
            if i:
                return {"x": 1.0}
            if kind == "not a dict":
                return 1.0
            if kind == "empty":
                return {}
            if kind == "coroutine":
                return {"x": asyncio.sleep(0)}
            return {"x": (n for n in [1]) if kind == "generator" else BAD[kind]}

    rollouts = await batch(Odd, 3)
    assert [r.reward for r in rollouts] == [None, 1.0, 1.0]
    assert all(rollouts[0].unscored.values())


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopIteration]
)
async def test_whatever_a_reward_raises_is_recorded(error):
    """B9."""

    class Raising(Rewarding):
        async def reward(self, i):
            if i == 0:
                raise error("boom")
            return {"x": 1.0}

    rollouts = await batch(Raising, 4)
    assert [r.reward for r in rollouts] == [None, 1.0, 1.0, 1.0]
    assert rollouts[0].termination is Termination.REWARD_ERROR


async def test_errors_are_kept_short_even_when_they_are_rude():
    class Rude(Exception):
        def __str__(self):
            raise RuntimeError("no")

    class Long(Rewarding):
        async def reward(self, i):
            raise Rude() if i else ValueError("x" * 10_000_000)

    rollouts = await batch(Long, 2)
    assert all(0 < len(r.error.message) <= limits.ERROR_CHARS + 200 for r in rollouts)


async def test_a_slow_tool_is_cut_and_the_model_told():
    """F11."""

    class Slow(BaseEnv):
        async def list_tools(self):
            return [ToolDefinition("wait", "Waits.")]

        async def run_tool(self, rollout_id, tool_name, **kw):
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(30)

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"x": 1.0}

    began = time.monotonic()
    async with EnvHost(Slow) as host:
        rollout = await run_rollout(
            host,
            examples(1)[0],
            ScriptedModel([ToolCall("wait", "{}", "c"), "done"]),
            RolloutSettings(tool_seconds=0.3),
        )
        assert time.monotonic() - began < 60  # it never ends by itself
    assert rollout.ok
    assert "took longer than 0.3 s" in rollout.messages[-2]["content"]


async def test_cancelling_at_any_moment_releases_what_was_initialised():
    """F18: 200 rollouts, cancelled at different phases; init and release are called equally often."""
    calls = Counter()

    class Counting(BaseEnv):
        async def list_tools(self):
            return [ToolDefinition("step", "Steps.")]

        async def init_rollout(self, rollout_id, **kw):
            calls["init"] += 1
            await asyncio.sleep(0.01)

        async def run_tool(self, rollout_id, tool_name, **kw):
            calls["tool"] += 1
            await asyncio.sleep(0.01)
            return "ok"

        async def compute_reward(self, rollout_id, messages, task, **kw):
            calls["reward"] += 1
            await asyncio.sleep(0.01)
            return {"x": 1.0}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
            calls["group"] += 1
            await asyncio.sleep(0.01)
            return [{} for _ in rollout_ids]

        async def release_rollout(self, rollout_id):
            await asyncio.sleep(0.005)
            calls["release"] += 1

    model = ScriptedModel([ToolCall("step", "{}", "c")] * 2 + ["done"], delay=0.005)
    async with EnvHost(Counting) as host:
        tasks = [asyncio.create_task(run_group(host, ex, model, samples=range(2))) for ex in examples(100)]
        for n, task in enumerate(tasks):
            # By what has happened, and not by the clock: the first while they begin, the last while they are scored.
            while calls.total() < 60 + 6 * n and not all(each.done() for each in tasks):
                await asyncio.sleep(0.001)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert calls["init"] == calls["release"]
        assert calls["init"] > 50
        assert min(calls.values()) > 0
    assert sum(isinstance(r, asyncio.CancelledError) for r in results) > 50
    assert all(isinstance(r, asyncio.CancelledError | list) for r in results)


async def test_nothing_is_left_behind():
    """F23: threads and tasks after 50 environments, and after 200 rollouts whose init fails."""

    class Failing(BaseEnv):
        async def init_rollout(self, rollout_id, **kw):
            raise OSError("no")

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"x": 1.0}

    def ours():
        return {thread for thread in threading.enumerate() if thread.name.startswith("benchmax-")}

    before = ours()
    for _ in range(50):
        async with EnvHost(Failing):
            pass
    async with EnvHost(Failing) as host:
        rollouts = await run_batch(host, examples(200), ScriptedModel("x"))
    assert {r.termination for r in rollouts} == {Termination.ENV_ERROR}
    end = time.monotonic() + 30
    while (ours() - before or len(asyncio.all_tasks()) > 1) and time.monotonic() < end:
        await asyncio.sleep(0.02)
    assert ours() - before == set()
    assert len(asyncio.all_tasks()) == 1


async def test_an_environment_may_take_its_time_to_be_built(caplog):
    class Slow(BaseEnv):
        def __init__(self):
            time.sleep(3 * limits.BLOCKING_SECONDS)

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"r": 1.0}

    async with EnvHost(Slow) as host:
        assert host.blocking_hooks == frozenset()
    assert [record for record in caplog.records if record.name.startswith("benchmax")] == []
