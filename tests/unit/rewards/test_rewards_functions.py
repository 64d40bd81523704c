import asyncio
import contextvars
import functools
import threading

import pytest

from benchmax import limits
from benchmax.envs.types import Transcript, Unscored
from benchmax.errors import ConfigError
from benchmax.rewards import Rewards

MESSAGES = Transcript(
    [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
    ],
    completion_start=2,
)
CALL = {"messages": MESSAGES, "task": {"ground_truth": "4"}, "rollout_id": "r1"}


async def test_functions_get_what_they_name():
    seen = {}

    def sync(completion, ground_truth, prompt):
        seen["sync"] = (completion, ground_truth, prompt)
        return completion == ground_truth

    async def asynchronous(messages, task, *, rollout_id, level=7):
        seen["async"] = (messages, task, rollout_id, level)
        return 0.5

    def positional(completion, /, *args):
        return len(completion) + len(args)

    def everything(completion, **kwargs):
        seen["all"] = set(kwargs)
        return 0

    rewards = Rewards({"a": sync, "b": asynchronous, "c": positional, "d": everything})
    assert await rewards(**CALL, level=3) == {"a": 1.0, "b": 0.5, "c": 1.0, "d": 0.0}
    assert seen["sync"] == ("4", "4", "2+2?")
    assert seen["async"] == (MESSAGES, CALL["task"], "r1", 3)
    assert seen["all"] == {"messages", "ground_truth", "prompt", "task", "rollout_id", "level"}


async def test_other_callables():
    class Sync:
        def __call__(self, completion):
            return 1

    class Async:
        async def __call__(self, completion):
            return 2

    async def three(completion, extra):
        return extra

    functions = {
        "a": Sync(),
        "b": Async(),
        "c": functools.partial(three, extra=3),
        "d": lambda completion: three("", 4),
    }
    assert await Rewards(functions)(**CALL) == {"a": 1, "b": 2, "c": 3, "d": 4}


async def test_an_argument_may_have_any_name():
    rewards = Rewards({"same": lambda function, loop: function == loop})
    assert await rewards(messages=MESSAGES, function="x", loop="x") == {"same": 1.0}


async def test_defaults_without_a_task():
    rewards = Rewards({"r": lambda task, ground_truth, rollout_id: task is None and ground_truth is None})
    assert await rewards(messages="text") == {"r": 1.0}
    from_extra = Rewards({"r": lambda ground_truth: ground_truth == 5})
    assert await from_extra(messages="", ground_truth=5) == {"r": 1.0}
    assert await Rewards({})(messages="") == {}


async def test_weights_multiply():
    rewards = Rewards({"a": lambda: 1, "b": lambda: 1, "c": lambda: None}, {"a": 0.25, "c": 2})
    result = await rewards(**CALL)
    assert (result["a"], result["b"]) == (0.25, 1.0)
    assert isinstance(result["c"], Unscored)


@pytest.mark.parametrize(
    ("functions", "weights", "word"),
    [
        ({"a": lambda: 1}, {"b": 1}, "no such reward"),
        ({"a": lambda: 1}, {"a": float("nan")}, "finite"),
        ({"a": 3}, None, "give a function"),
        ({"a\n": lambda: 1}, None, "rename"),
    ],
)
def test_a_wrong_set_is_refused(functions, weights, word):
    with pytest.raises(ConfigError, match=word):
        Rewards(functions, weights)


def raising(error):
    def reward():
        raise error

    return reward


async def test_a_failure_costs_its_own_component_only():
    async def cancels():
        raise asyncio.CancelledError

    async def leaves():
        raise SystemExit(3)

    functions = {
        "ok": lambda: 1,
        "raises": raising(ValueError("x" * 10**6)),
        "exits": raising(SystemExit(1)),
        "stops": raising(StopIteration()),
        "cancels": cancels,
        "leaves": leaves,
        "unknown": lambda nonsense: 1,
        "text": lambda: "1",
    }
    result = await Rewards(functions)(**CALL)
    assert result.pop("ok") == 1.0
    assert all(isinstance(value, Unscored) and len(value.reason) <= limits.ERROR_CHARS for value in result.values())
    assert "ValueError: xxx" in result["raises"].reason
    assert "SystemExit" in result["exits"].reason
    assert "'nonsense'" in result["unknown"].reason
    assert "ground_truth" in result["unknown"].reason


async def test_all_run_at_once():
    barrier = threading.Barrier(3, timeout=60)
    result = await Rewards({name: lambda: barrier.wait() * 0 + 1 for name in "abc"})(**CALL)
    assert result == {"a": 1, "b": 1, "c": 1}


async def test_a_hung_function_is_given_up():
    release = threading.Event()
    cleaned = []

    async def sleeps():
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    rewards = Rewards({"blocks": release.wait, "sleeps": sleeps, "ok": lambda: 1}, timeout=2)
    result = await rewards(**CALL)  # neither would ever end by itself
    assert result["ok"] == 1.0
    assert "longer than 2 s" in result["blocks"].reason
    assert "longer than 2 s" in result["sleeps"].reason
    assert cleaned == [True]
    release.set()


async def test_cancelling_the_caller_cancels_the_functions():
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def sleeps():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task = asyncio.create_task(Rewards({"r": sleeps})(**CALL))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_a_blocking_function_does_not_hold_the_loop():
    loop, blocks, loop_answered = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def blocking():
        loop.call_soon_threadsafe(blocks.set)
        return float(loop_answered.wait(60))

    scored = asyncio.create_task(Rewards({"r": blocking})(**CALL))
    await blocks.wait()
    loop_answered.set()
    assert await scored == {"r": 1.0}


async def test_context_variables_reach_threads():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(5)
    assert await Rewards({"r": lambda: variable.get()})(**CALL) == {"r": 5.0}
