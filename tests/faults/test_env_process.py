"""An environment in a process of its own behaves as it does in ours, and what kills it kills nothing else."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets import load_examples
from benchmax.envs.example_id import make_example
from benchmax.envs.remote import ProcessLimits, RemoteEnv, example_context, open_remote_env
from benchmax.envs.remote.wire import Frames, RemoteError, describe, pack, rebuild
from benchmax.envs.types import ToolCall, ToolDefinition, ToolResult, Unscored
from benchmax.errors import DatasetError, EnvDefinitionError, EnvError, RewardError, ToolError
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, RolloutSettings, Termination, run_batch, run_group, run_rollout

logger = logging.getLogger("tests.env_process")


def examples(n, **extra):
    return [make_example([{"role": "user", "content": f"question {i}"}], {"i": i}, **extra) for i in range(n)]


@asynccontextmanager
async def hosted(env_class, *, constructor_args=None, **options):
    env = await open_remote_env(dump_bundle(env_class, constructor_args=constructor_args), **options)
    async with EnvHost(env) as host:
        yield host


class Doing(BaseEnv):
    """Each tool does one thing, good or bad."""

    async def list_tools(self):
        return [ToolDefinition("do", "does it", {"type": "object", "properties": {"what": {"type": "string"}}})]

    async def run_tool(self, rollout_id, tool_name, what="", **kw):
        if what == "pid":
            return str(os.getpid())
        if what == "exit":
            os._exit(3)
        if what == "sys.exit":
            sys.exit(3)
        if what == "segfault":
            ctypes.string_at(0)
        if what == "wait":
            Path(kw["mark"]).touch()
            await asyncio.sleep(60)
        if what == "regex":
            Path(kw["mark"]).touch()
            re.match(r"(a+)+$", "a" * 40 + "b")
        if what == "garbage":
            os.write(int(sys.argv[1]), b"\xff" * 100)
            await asyncio.sleep(60)
        if what == "memory":
            return str(len(b"x" * (4 * 2**30)))
        if what == "environ":
            return "\n".join(os.environ)
        return "nothing"

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


async def do(host, what, rollout="r", deadline=60.0, **more):
    return await host.call("run_tool", rollout, "do", deadline=deadline, what=what, **more)


async def pid_of(host, rollout="someone else"):
    return int(await do(host, "pid", rollout))


async def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


# The same as in one process


class Everything(BaseEnv):
    """Uses every shape that crosses the border."""

    system_prompt = "Be brief."
    recommended_max_turns = 3
    reward_weights = {"found": 2.0}
    PRIMARY_REWARD_KEY = "found"

    def __init__(self, bonus=0.0):
        self.bonus = bonus
        self.rooms = {}

    async def list_tools(self):
        return [ToolDefinition("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})]

    async def init_rollout(self, rollout_id, colour="grey", **kw):
        self.rooms[rollout_id] = [colour]

    async def run_tool(self, rollout_id, tool_name, at="", **kw):
        self.rooms[rollout_id].append(at)
        if at == "wall":
            raise ValueError("there is a wall")
        if at == "dark":
            raise ToolError("it is dark")
        if at == "list":
            return ["a", 1, None]
        return ToolResult("a picture", parts=({"type": "image_url", "image_url": {"url": "data:,"}},))

    async def compute_reward(self, rollout_id, messages, task, **kw):
        assert messages.completion[0]["role"] == "assistant"
        assert messages.prompt[0]["content"] == "Be brief."
        if task["i"] == 1:
            raise KeyError("gone")
        if task["i"] == 2:
            return {"found": Unscored("the judge slept"), "bad": float("nan")}
        return {"found": len(self.rooms[rollout_id]) + self.bonus, "kw": float(kw == {"colour": "red"})}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
        assert all(messages.completion for messages in messages_list)
        return [{"siblings": float(sum(each in self.rooms for each in rollout_ids))} for _ in rollout_ids]

    async def release_rollout(self, rollout_id):
        del self.rooms[rollout_id]


class OldStyle(BaseEnv):
    @classmethod
    def dataset_preprocess(cls, example, **kw):
        return {"prompt": example["q"], "ground_truth": example["a"], "init_rollout_args": None}

    async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
        return {"right": float(completion[-1]["content"] == ground_truth)}


def looking(messages, **kw):
    places = ["wall", "dark", "list", "sky"]
    turn = sum(m["role"] == "assistant" for m in messages)
    calls = [ToolCall("look", f'{{"at": "{place}"}}', f"{turn}-{place}").to_dict() for place in places]
    return {"role": "assistant", "tool_calls": calls} if turn == 0 else "done"


def essence(rollout):
    return (
        rollout.example_id, rollout.sample, rollout.env, rollout.termination, rollout.messages, rollout.rewards,
        rollout.unscored, rollout.reward, rollout.ok, rollout.error and (rollout.error.type, rollout.error.message),
    )  # fmt: skip


async def test_records_are_the_same_as_in_one_process():
    asked = examples(4, init_rollout_args={"colour": "red"})
    async with hosted(Everything, constructor_args={"bonus": 0.5}) as far, EnvHost(lambda: Everything(0.5)) as near:
        there = await run_batch(far, asked, ScriptedModel(looking), group_size=3)
        here = await run_batch(near, asked, ScriptedModel(looking), group_size=3)
    order = [r.example_id for r in here]
    there.sort(key=lambda r: (order.index(r.example_id), r.sample))
    here.sort(key=lambda r: (order.index(r.example_id), r.sample))
    assert list(map(essence, there)) == list(map(essence, here))
    good = next(r for r in there if r.task["i"] == 0)
    assert good.rewards == {"found": 5.5, "kw": 1.0, "siblings": 3.0}
    assert good.env == "Everything"


async def test_the_proxy_tells_the_truth_about_hooks():
    async with hosted(Everything) as host:
        env = host.env
        assert isinstance(env, RemoteEnv)
        hooks = ["list_tools", "run_tool", "init_rollout", "compute_group_reward", "validate_probe", "gold_completion"]
        assert [overrides(env, hook) for hook in hooks] == [overrides(Everything, hook) for hook in hooks]
        assert not overrides(env, "estimate_rollout_tokens")
        assert (env.system_prompt, env.recommended_max_turns, env.PRIMARY_REWARD_KEY) == ("Be brief.", 3, "found")
        assert env.reward_weights == {"found": 2.0}


async def test_older_environments_and_their_rows():
    rows = [{"q": "2+2?", "a": "4"}, {"q": "3+3?", "a": "6"}, {"q": "2+2?", "a": "4"}]
    async with hosted(OldStyle) as host:
        loaded = await host.env.preprocess(rows)
        assert loaded.examples == load_examples(rows, OldStyle).examples
        assert loaded.report.duplicates == 1
        assert await asyncio.to_thread(load_examples, rows[:1], type(host.env)) is not None
        rollouts = await run_batch(host, loaded.examples, ScriptedModel("4"))
        assert sorted(r.reward for r in rollouts) == [0.0, 1.0, 1.0]
        with pytest.raises(DatasetError, match=r"rows:2: .*KeyError"):
            await host.env.preprocess([rows[0], {"nothing": 1}])


class Chatty(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kw):
        logging.getLogger("tests.env_process.chatty").info("scoring %s", task["i"])
        print(f"printed {task['i']}")
        return {"x": 1.0}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
        logging.getLogger("tests.env_process.chatty").warning("for all")
        return [{} for _ in rollout_ids]


async def test_log_lines_reach_their_rollout_and_prints_the_callback():
    printed = []
    bundle = dump_bundle(Chatty)
    env = await open_remote_env(bundle, output=lambda stream, line: printed.append((stream, line)))
    async with EnvHost(env) as host:
        await env._call("compute_reward", ["x"], ("x",), {"messages": [], "task": {"i": -1}})
        groups = [await run_group(host, each, ScriptedModel("x"), samples=range(2)) for each in examples(2)]
    for i, group in enumerate(groups):
        for rollout in group:
            said = [line.message for line in rollout.logs]
            assert said[-1] == "for all"
            assert set(said[:-1]) <= {f"scoring {i}"}
    assert ("stdout", "printed 0") in printed
    assert ("stdout", "printed 1") in printed


async def test_values_that_cannot_cross_are_named():
    class Odd(BaseEnv):
        async def validate_probe(self, eval_dataset):
            return {"x": object()}

        async def compute_reward(self, rollout_id, messages, task, **kw):
            raise RewardError("not today") if task else RuntimeError("\ud800 odd text")

    async with hosted(Odd) as host:
        with pytest.raises(EnvError, match="What validate_probe returned cannot leave its process: a object"):
            await host.env.validate_probe([])
        with pytest.raises(EnvError, match="arguments of validate_probe cannot reach"):
            await host.env.validate_probe([object()])
        with pytest.raises(RewardError, match="not today"):
            await host.env.compute_reward("r", [], {"a": 1})
        with pytest.raises(RemoteError, match="odd text") as caught:
            await host.env.compute_reward("r", [], {})
        assert type(caught.value).__name__ == "RuntimeError"
        assert "compute_reward" in caught.value.__notes__[0]  # the traceback there


async def test_workspace_files_cross(tmp_path):
    class Files(BaseEnv):
        async def copy_to_workspace(self, rollout_id, src_path, dst_filename=None):
            Path(dst_filename).write_bytes(src_path.read_bytes())

        async def copy_content_to_workspace(self, rollout_id, src_content, dst_filename):
            Path(dst_filename).write_bytes(src_content)

        async def copy_from_workspace(self, rollout_id, src_filename, dst_path):
            dst_path.write_bytes(Path(src_filename).read_bytes() + Path("b").read_bytes())

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    (tmp_path / "in").write_bytes(b"one")
    async with hosted(Files) as host:
        await host.env.copy_to_workspace("r", tmp_path / "in", "a")
        await host.env.copy_content_to_workspace("r", b"\x00two", "b")
        await host.env.copy_from_workspace("r", "a", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"one\x00two"


# Death


@pytest.mark.parametrize(
    ("what", "words"),
    [("exit", "exit code 3"), ("segfault", "SIGSEGV(.|\n)*Segmentation fault"), ("garbage", "sent an invalid message")],
)
async def test_a_dying_process_fails_its_calls_and_is_replaced(tmp_path, what, words):
    """F13: only its own process dies."""
    mark = tmp_path / "begun"
    async with hosted(Doing) as host:
        before = await pid_of(host)
        waiting = asyncio.create_task(do(host, "wait", "bystander", mark=str(mark)))
        await until(mark.exists)
        with pytest.raises(EnvError, match=words):
            await do(host, what)
        with pytest.raises(EnvError, match="The environment's process"):
            await waiting
        with pytest.raises(EnvError, match="process of this rollout has ended"):
            await do(host, "nothing")
        assert await pid_of(host, "new") != before
        await until(lambda: not psutil.pid_exists(before))


async def test_sys_exit_in_a_hook_fails_that_call_only():
    async with hosted(Doing) as host:
        before = await pid_of(host)
        with pytest.raises(EnvError, match="SystemExit"):
            await do(host, "sys.exit")
        assert await pid_of(host) == before


async def test_memory_is_limited_and_the_error_says_so():
    """F14."""
    limit = ProcessLimits(memory_bytes=2**30)
    async with hosted(Doing, process_limits=limit) as host:
        before = psutil.Process().memory_info().rss
        with pytest.raises(RemoteError, match="memory limit 1 GiB") as caught:
            await do(host, "memory")
        assert "run_tool" in str(caught.value)
        assert psutil.Process().memory_info().rss - before < 50 * 2**20
        assert await do(host, "nothing", "other") == "nothing"


async def test_a_process_that_holds_its_interpreter_lock_is_killed_at_the_deadline(tmp_path):
    mark = tmp_path / "begun"
    async with hosted(Doing, processes=2, cancel_seconds=0.5) as host:
        with example_context("stuck"):
            await pid_of(host, "first")  # the process is up
            stuck = asyncio.create_task(do(host, "regex", "stuck", deadline=3.0, mark=str(mark)))
            await until(mark.exists)
            bystander = asyncio.create_task(do(host, "wait", "bystander", mark=str(tmp_path / "never")))
        (first, second) = await asyncio.gather(stuck, bystander, return_exceptions=True)
        assert type(first).__name__ == "DeadlineExceeded"
        assert isinstance(second, EnvError)
        assert "did not answer for 0.5 s after run_tool was abandoned" in str(second)
        with example_context("stuck"):
            assert await do(host, "nothing", "later") == "nothing"


async def test_a_cancelled_call_is_cancelled_there():
    class Waiting(BaseEnv):
        def __init__(self):
            self.seen = []

        async def run_tool(self, rollout_id, tool_name, **kw):
            if tool_name == "seen":
                return ",".join(self.seen)
            self.seen.append("began")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.seen.append("cancelled")
                raise

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    async with hosted(Waiting) as host:
        task = asyncio.create_task(host.call("run_tool", "r", "wait", deadline=60))
        while await host.call("run_tool", "r", "seen", deadline=60) != "began":
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while await host.call("run_tool", "r", "seen", deadline=60) != "began,cancelled":
            await asyncio.sleep(0)


async def test_siblings_meet_in_one_process():
    class Meeting(BaseEnv):
        def __init__(self):
            self.present = set()

        async def init_rollout(self, rollout_id, **kw):
            self.present.add(rollout_id)

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"pid": float(os.getpid())}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
            assert self.present.issuperset(rollout_ids)
            return [{"met": 1.0} for _ in rollout_ids]

    async def group(host, example):
        with example_context(example["id"]):
            return await run_group(host, example, ScriptedModel("x"), samples=range(4))

    async with hosted(Meeting, processes=3) as host:
        groups = await asyncio.gather(*(group(host, each) for each in examples(24)))
        assert all(r.ok and r.rewards["met"] == 1.0 for g in groups for r in g)
        assert all(len({r.rewards["pid"] for r in g}) == 1 for g in groups)
        assert len({g[0].rewards["pid"] for g in groups}) == 3
        unknown = [run_group(host, each, ScriptedModel("x"), samples=range(4)) for each in examples(8)]
        assert all(r.rewards["met"] == 1.0 for g in await asyncio.gather(*unknown) for r in g)


# Starting


async def test_an_environment_that_cannot_be_opened_says_why_at_once():
    class Closed(BaseEnv):
        def __init__(self):
            raise FileNotFoundError("no index.db here")

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    with pytest.raises(EnvDefinitionError, match=r"FileNotFoundError: no index\.db here") as caught:
        await open_remote_env(dump_bundle(Closed))
    assert "__init__" in caught.value.__notes__[0]


async def test_a_process_that_always_crashes_at_its_start_is_given_up():
    class Crashing(BaseEnv):
        def __init__(self):
            print("the driver is missing", file=sys.stderr)
            os._exit(9)

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    with pytest.raises(EnvDefinitionError, match=r"exit code 9(.|\n)*the driver is missing"):
        await open_remote_env(dump_bundle(Crashing))


async def test_a_slow_start_is_given_up_in_time():
    class Slow(BaseEnv):
        def __init__(self):
            time.sleep(60)

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    with pytest.raises(EnvDefinitionError, match=r"did not start within 0\.8 s"):
        await open_remote_env(dump_bundle(Slow), start_seconds=0.8)


async def test_a_named_environment_runs_too(tmp_path):
    async with EnvHost(await open_remote_env("arithmetic")) as host:
        assert host.name == "ArithmeticEnv"
    (tmp_path / "mine.py").write_text(
        "from benchmax.envs.base_env import BaseEnv\n"
        "class Mine(BaseEnv):\n"
        "    def __init__(self, n): self.n = n\n"
        "    async def compute_reward(self, rollout_id, messages, task, **kw): return {'n': self.n}\n"
    )
    async with EnvHost(await open_remote_env(f"{tmp_path}/mine.py", constructor_args={"n": 7})) as host:
        rollout = await run_rollout(host, examples(1)[0], ScriptedModel("x"), RolloutSettings())
        assert (rollout.reward, rollout.termination) == (7.0, Termination.FINISHED)


# The border


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9) | st.just("$benchmax"), inner),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(JSON, max_size=5), st.integers(1, 9))
def test_messages_survive_the_wire_in_any_pieces(values, step):
    ours = [Unscored("why"), ToolResult("t", True, ({"a": 1},)), ToolDefinition("n", "d", {}), b"\x00\xff", Path("/x")]
    sent = [*({"v": value} for value in values), {"v": ours}, {"v": "\ud800"}]
    stream = b"".join(map(pack, sent))
    frames = Frames()
    got = [each for at in range(0, len(stream), step) for each in frames.feed(stream[at : at + step])]
    assert got == sent


@pytest.mark.parametrize("rubbish", [b"\xff" * 9, b"\0\0\0\2\0[]", b"\0\0\0\1\0{", b"\0\0\0\2\0\xff\xff"])
def test_rubbish_on_the_wire_is_a_value_error(rubbish):
    with pytest.raises(ValueError, match=r"."):
        list(Frames().feed(rubbish))
    with pytest.raises(ValueError, match="too deeply"):
        list(Frames().feed(b"\0\1\x86\xa0\0" + b"[" * 100_000))


def test_errors_keep_their_name_and_can_be_pickled():
    error = rebuild(describe(KeyError("x")))
    assert (type(error).__name__, str(error), isinstance(error, RemoteError)) == ("KeyError", "'x'", True)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (RemoteError, "'x'")
    assert type(rebuild(describe(ToolError("no")))) is ToolError
    assert type(rebuild({"type": "__import__('os')", "kind": "sys", "message": 3})) is RemoteError


async def test_the_process_sees_only_allowed_variables(monkeypatch):
    """S33."""
    monkeypatch.setenv("CASTFORM_API_KEY", "sk_secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("BENCHMAX_RUN_DIR", "by this the runner knows who belongs to a run")
    async with hosted(Doing, variables={"MY_SETTING": "yes"}) as host:
        pid = await pid_of(host)
        dump = Path(f"/proc/{pid}/environ").read_text()
        assert "secret" not in dump
        assert "MY_SETTING=yes" in dump
        names = set((await do(host, "environ")).split())
        assert {"PATH", "MY_SETTING", "TMPDIR", "BENCHMAX_RUN_DIR"} <= names
        assert not {"CASTFORM_API_KEY", "DATABASE_URL", "PYTEST_CURRENT_TEST"} & names
        # Out of memory, the kernel takes an environment before the trainer.
        assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) >= 500
        child = psutil.Process(pid)
        assert child.cwd() not in (os.getcwd(), "/")
        assert os.getpgid(pid) == pid
        folder = Path(child.cwd())
    assert not folder.exists()


ORPHAN = """
    import asyncio, subprocess, sys
    from benchmax.bundle import dump_bundle
    from benchmax.envs.base_env import BaseEnv
    from benchmax.envs.remote import RemoteEnv

    class Env(BaseEnv):
        async def run_tool(self, rollout_id, tool_name, **kw):
            import os, pathlib, re
            if tool_name == "stick":
                pathlib.Path(kw["mark"]).touch()
                re.match(r"(a+)+$", "a" * 40 + "b")
            return f"{os.getpid()} {subprocess.Popen(['sleep', '60']).pid}"

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    async def main():
        env = RemoteEnv(dump_bundle(Env))
        print(await env._call("run_tool", ["r"], ("r", "start")), env._pool._spec.workdir, flush=True)
        if sys.argv[1] == "stuck":
            await env._call("run_tool", ["r"], ("r", "stick"), {"mark": sys.argv[2]})
        await asyncio.sleep(60)

    asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "stuck"])
def test_the_process_ends_when_its_parent_is_killed(tmp_path, state):
    script = tmp_path / "orphan.py"
    script.write_text(textwrap.dedent(ORPHAN))
    mark = tmp_path / "begun"
    words = [sys.executable, str(script), state, str(mark)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    *pids, folder = parent.stdout.readline().split()
    child, grandchild = map(int, pids)
    try:
        assert psutil.pid_exists(child)
        while state == "stuck" and not mark.exists():
            time.sleep(0.02)  # polling another process
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 60
        while (any(map(_alive, (child, grandchild))) or Path(folder).exists()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(_alive, (child, grandchild)))
        assert not Path(folder).exists()
    finally:
        parent.stdout.close()
        for pid in (child, grandchild):
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)


def _alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_call_costs_little_on_both_sides():
    """In processor time: how long it takes is also the machine's affair."""
    async with hosted(Doing) as host:
        child = psutil.Process(await pid_of(host)).cpu_times
        calls = 4000
        here, there = time.process_time(), sum(child()[:2])
        for _ in range(calls // 250):
            await asyncio.gather(*(do(host, "nothing", f"r{i}") for i in range(250)))
        here, there = time.process_time() - here, sum(child()[:2]) - there
        assert here / calls < 0.0006  # a tenth of a millisecond on an idle machine
        assert there / calls < 0.0006


async def test_an_environment_that_is_lost_takes_its_processes_along():
    env = await open_remote_env(dump_bundle(Doing))
    pid = int(await env.run_tool("r", "do", what="pid"))
    folder = Path(psutil.Process(pid).cwd())
    del env
    while _alive(pid) or folder.exists():
        await asyncio.sleep(0.02)


class Digging(BaseEnv):
    """Leaves folders nested deeper than Python recurses."""

    async def list_tools(self):
        here = os.getcwd()
        os.chdir(os.environ["TMPDIR"])
        for _ in range(1_500):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(here)
        return []

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"a": 1.0}


async def test_deep_folders_do_not_hold_up_its_end():
    env = await open_remote_env(dump_bundle(Digging))
    assert await env.list_tools() == []
    await asyncio.wait_for(env.shutdown(), 30)
