"""What an environment's code does stays its own: the record, the siblings, the loop and the threads are kept apart."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from queue import Empty, SimpleQueue

from benchmax.cross_loop import LoopCalls
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.logging import __name__ as env_logging
from benchmax.envs.logging import captured, rollout_context
from benchmax.envs.types import ToolCall, ToolDefinition, ToolResult
from benchmax.errors import McpError
from benchmax.files.jsonl import line_of
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, RolloutSettings, Termination, replay, run_group, run_rollout
from benchmax.rollouts.hooks import Call, HookThreads


def example():
    return make_example([{"role": "user", "content": "q"}], {"gold": "5"})


class Scored(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": 1.0}


class Tools(Scored):
    async def list_tools(self):
        return [ToolDefinition("one", "One."), ToolDefinition("two", "Two.")]


async def test_a_reward_may_change_what_lies_within_a_message():
    class Parsing(Tools):
        async def run_tool(self, rollout_id, tool_name, **args):
            return ToolResult("seen", parts=({"type": "image_url", "image_url": {"url": "data:,"}},))

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            function = messages[1]["tool_calls"][0]["function"]
            function["arguments"] = json.loads(function["arguments"])
            messages[2]["content"].clear()
            return {"x": 1.0}

    async with EnvHost(Parsing) as host:
        rollout = await run_rollout(host, example(), ScriptedModel([ToolCall("one"), "done"]))
    assert rollout.ok, rollout.error
    assert rollout.messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert len(rollout.messages[2]["content"]) == 2


async def test_parts_of_a_tool_that_are_no_json_are_an_error_the_model_reads():
    class Odd(Tools):
        async def run_tool(self, rollout_id, tool_name, **args):
            if tool_name == "one":
                return ToolResult("a picture", parts=({"type": "image_url", "image_url": b"raw"},))
            return ToolResult(None)  # type: ignore[arg-type]

    async with EnvHost(Odd) as host:
        rollout = await run_rollout(host, example(), ScriptedModel([[ToolCall("one"), ToolCall("two")], "done"]))
    assert rollout.termination is Termination.FINISHED
    assert all(message["content"].startswith("Error: the tool returned") for message in rollout.messages[2:4])
    assert [event.ok for event in rollout.tool_events] == [False, False]
    assert json.loads(line_of(rollout.to_dict()))["ok"]


async def test_no_tool_of_a_turn_outlives_the_rollout():
    seen = []

    class Lost(Tools):
        def __init__(self):
            self.both = asyncio.Event()

        async def run_tool(self, rollout_id, tool_name, **args):
            if tool_name == "one":
                await self.both.wait()
                raise McpError("the server is gone")
            self.both.set()
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append("two ended")

        async def release_rollout(self, rollout_id):
            seen.append("released")

    async with EnvHost(Lost) as host:
        rollout = await run_rollout(host, example(), ScriptedModel([[ToolCall("one"), ToolCall("two")], "done"]))
        assert rollout.termination is Termination.ENV_ERROR
        assert seen == ["two ended", "released"]


async def test_a_reward_put_right_makes_a_rollout_that_ran_out_of_turns_good():
    class Broken(Tools):
        broken = True

        async def run_tool(self, rollout_id, tool_name, **args):
            return "again"

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            if self.broken:
                raise ValueError("not yet")
            return {"x": 1.0}

    async with EnvHost(Broken) as host:
        rollout = await run_rollout(host, example(), ScriptedModel([ToolCall("one")]), RolloutSettings(max_turns=1))
        assert (rollout.termination, rollout.ok) == (Termination.MAX_TURNS, False)
        assert rollout.error is not None
        host.env.broken = False
        pairs = [pair async for pair in replay(host, [rollout])]
    ((before, after),) = pairs
    assert before.error is not None
    assert (after.reward, after.ok, after.error, after.termination) == (1.0, True, None, Termination.MAX_TURNS)


async def test_siblings_that_are_compared_are_scored_again_before_any_is_released():
    class Stateful(BaseEnv):
        def __init__(self):
            self.open = {}
            self.most = 0

        async def init_rollout(self, rollout_id, **kwargs):
            self.open[rollout_id] = "state"
            self.most = max(self.most, len(self.open))

        async def release_rollout(self, rollout_id):
            del self.open[rollout_id]

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            await asyncio.sleep(0.001)
            return {"own": 1.0}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
            return [{"best": float(self.open[each] == "state")} for each in rollout_ids]

    settings = RolloutSettings()
    async with EnvHost(Stateful) as host:
        saved = []
        for name in "abc":
            row = make_example([{"role": "user", "content": name}])
            saved += await run_group(host, row, ScriptedModel("x"), settings, samples=range(3))
        saved[4].termination = Termination.MODEL_ERROR  # has nothing to score; the others do not wait for it
        host.env.most = 0
        pairs = [pair async for pair in replay(host, saved, settings, concurrency=4)]
        assert host.env.most == 3, "one group at a time: two would be more than four rollouts"
    assert [after.reward for _, after in pairs] == [2.0] * 4 + [None] + [2.0] * 4
    assert all(before is each for (before, _), each in zip(pairs, saved, strict=True))


async def test_a_group_without_any_component_says_why_it_has_no_reward():
    class Empty(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
            return [{} for _ in rollout_ids]

    async with EnvHost(Empty) as host:
        rollouts = await run_group(host, example(), ScriptedModel("hm"), samples=[0, 1])
    assert all(rollout.reward is None and "no component" in rollout.unscored["group_reward"] for rollout in rollouts)


async def test_a_plain_hook_needs_no_event_loop_of_its_own(monkeypatch):
    class Later:
        def __await__(self):
            yield

    class Plain(BaseEnv):
        def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"x": 1.0}

    def refuse():
        raise OSError(24, "Too many open files")

    async with EnvHost(Plain) as host:
        monkeypatch.setattr(asyncio, "new_event_loop", refuse)
        rollout = await run_rollout(host, example(), ScriptedModel("x"), RolloutSettings(reward_seconds=5.0))
        assert rollout.ok, rollout.error
        host.env.compute_reward = lambda *args, **kwargs: Later()  # which does need one
        rollout = await run_rollout(host, example(), ScriptedModel("x"), RolloutSettings(reward_seconds=5.0))
        assert rollout.error is not None
        assert "Too many open files" in rollout.error.message


def test_a_log_line_that_does_not_fit_its_arguments_fails_nothing(capsys):
    kept = []
    bad = logging.LogRecord("env", logging.INFO, __file__, 1, "%d rows", ("many",), None)
    good = logging.LogRecord("env", logging.INFO, __file__, 1, "%d rows", (3,), None)
    with rollout_context("r"), captured("r", lambda _, record: kept.append(record.getMessage())):
        (capture,) = (each for each in logging.getLogger().handlers if each.__class__.__module__ == env_logging)
        capture.handle(bad)
        capture.handle(good)
    assert kept == ["3 rows"]
    assert "Logging error" in capsys.readouterr().err


async def test_a_task_that_no_reward_can_take_is_recorded():
    class Old(BaseEnv):
        async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
            return {"x": 1.0}

        async def compute_group_reward(self, rollout_ids, completions, ground_truths, **kwargs):
            return [{"y": 1.0} for _ in rollout_ids]

    odd = {**example(), "task": ["not", "a", "dict"]}
    async with EnvHost(Old) as host:
        alone = await run_rollout(host, odd, ScriptedModel("x"))
        assert alone.termination is Termination.REWARD_ERROR
        for rollout in await run_group(host, odd, ScriptedModel("x"), samples=[0, 1]):
            assert rollout.termination is Termination.REWARD_ERROR
            assert not rollout.ok


async def test_a_background_task_that_quits_does_not_take_the_loop_along():
    loops = []

    class Quits(Scored):
        async def init_rollout(self, rollout_id, **kwargs):
            async def quit_now():
                raise SystemExit(3)

            loops.append(asyncio.get_running_loop())
            self.task = asyncio.create_task(quit_now())

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            await asyncio.wait([self.task])
            assert isinstance(self.task.exception(), SystemExit)
            loops.append(asyncio.get_running_loop())
            return {"x": 1.0}

    async with EnvHost(Quits) as host:
        rollout = await run_rollout(host, example(), ScriptedModel("hm"))
    assert rollout.ok, rollout.error
    assert loops[0] is loops[1]


def _call(function) -> Call:
    loop = asyncio.get_running_loop()
    return Call(function, (), {}, "hook", "hook", LoopCalls(loop), loop.create_future())


async def test_a_call_that_comes_as_the_last_idle_thread_leaves_is_run():
    late = _call(lambda: "late")

    class Leaving:
        """A queue in which the second wait ends just as a call comes in."""

        def __init__(self):
            self.inner: SimpleQueue = SimpleQueue()
            self.waits = 0
            self.put, self.qsize, self.get_nowait = self.inner.put, self.inner.qsize, self.inner.get_nowait

        def get(self, timeout):
            self.waits += 1
            if self.waits == 2:
                threads.start(late)
                raise Empty
            return self.inner.get(timeout=timeout)

    threads = HookThreads("test")
    threads._calls = Leaving()  # type: ignore[assignment]
    first = _call(lambda: "first")
    threads.start(first)
    assert await first.future == "first"
    assert await asyncio.wait_for(late.future, 60) == "late"
    threads.stop()


async def test_a_system_without_threads_to_give_fails_the_call_and_not_the_next(monkeypatch):
    class Plain(Scored):
        def init_rollout(self, rollout_id, **kwargs):  # type: ignore[override]
            pass

    start, refused = threading.Thread.start, []

    def refuse_once(thread):
        if thread.name == "benchmax-hook" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    async with EnvHost(Plain) as host:
        monkeypatch.setattr(threading.Thread, "start", refuse_once)
        first = await run_rollout(host, example(), ScriptedModel("hm"))
        second = await run_rollout(host, example(), ScriptedModel("hm"))
    assert (first.termination, second.ok) == (Termination.ENV_ERROR, True)
    assert "thread" in first.error.message
