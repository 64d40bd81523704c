"""A rollout whose environment's process dies under it is played again, and costs no other (F4)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmax import limits
from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.remote import open_remote_env
from benchmax.envs.types import ToolDefinition
from benchmax.errors import EnvLost
from benchmax.models.base import Sampling
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, RolloutSettings, Termination, run_batch, run_group
from runner_world import is_running


def examples(n):
    return [make_example([{"role": "user", "content": f"question {i}"}], {"i": i}) for i in range(n)]


@asynccontextmanager
async def hosted(env_class, *, constructor_args=None, **options):
    env = await open_remote_env(dump_bundle(env_class, constructor_args=constructor_args), **options)
    async with EnvHost(env) as host:
        yield host


async def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


class Held(BaseEnv):
    """Says where it scores, and waits for a word."""

    def __init__(self, folder):
        self.folder = Path(folder)

    async def compute_reward(self, rollout_id, messages, task, **kw):
        (self.folder / f"{os.getpid()}-{rollout_id}").touch()
        while not (self.folder / "go").exists():
            await asyncio.sleep(0.02)
        return {"pid": float(os.getpid())}


async def test_the_rollouts_of_a_killed_process_are_played_again_and_no_others(tmp_path):
    """Of four processes one is killed with 64 in flight."""

    def begun():
        return [int(path.name.partition("-")[0]) for path in tmp_path.glob("*-*")]

    async with hosted(Held, constructor_args={"folder": str(tmp_path)}, processes=4) as host:
        batch = asyncio.create_task(run_batch(host, examples(64), ScriptedModel("x")))
        await until(lambda: len(begun()) == 64)
        pids = set(begun())
        assert len(pids) == 4
        victim = min(pids)
        lost = begun().count(victim)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: len(set(begun())) == 5)  # the process was replaced
        (tmp_path / "go").touch()
        rollouts = await batch
    assert len(rollouts) == 64
    assert all(rollout.ok for rollout in rollouts)
    assert 8 <= lost == sum(rollout.attempt == 1 for rollout in rollouts)
    assert len({rollout.key for rollout in rollouts}) == 64
    assert {int(r.rewards["pid"]) for r in rollouts if r.attempt == 0} == pids - {victim}
    assert victim not in {int(r.rewards["pid"]) for r in rollouts}


class Poisoned(BaseEnv):
    """One answer ends the process that scores it."""

    async def init_rollout(self, rollout_id, **kw):
        pass

    async def compute_reward(self, rollout_id, messages, task, **kw):
        if task["i"] == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.2)  # the others are in the middle of theirs
        return {"x": 1.0}


async def test_a_rollout_that_kills_its_process_costs_no_other():
    async with hosted(Poisoned) as host:
        rollouts = await run_batch(host, examples(16), ScriptedModel("x"))
    failed = [rollout for rollout in rollouts if not rollout.ok]
    assert [rollout.task["i"] for rollout in failed] == [7]
    (poison,) = failed
    assert poison.attempt == limits.ROLLOUT_TRIES - 1
    assert (poison.error.type, poison.termination) == (EnvLost.__name__, Termination.REWARD_ERROR)
    assert "SIGKILL" in poison.unscored["reward"]


class Together(BaseEnv):
    """Siblings meet before they are scored; the first process does not live to see it."""

    def __init__(self, mark):
        self.mark, self.present = Path(mark), set()

    async def list_tools(self):
        return [ToolDefinition("look", "looks", {"type": "object", "properties": {}})]

    async def init_rollout(self, rollout_id, **kw):
        self.present.add(rollout_id)

    async def run_tool(self, rollout_id, tool_name, **kw):
        return "seen"

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"own": 1.0}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        assert self.present.issuperset(rollout_ids)
        return [{"met": float(len(rollout_ids))} for _ in rollout_ids]


async def test_a_group_that_is_scored_together_is_played_again_together(tmp_path):
    async with hosted(Together, constructor_args={"mark": str(tmp_path / "died")}) as host:
        group = await run_group(host, examples(1)[0], ScriptedModel("x"), samples=range(4))
    assert [rollout.sample for rollout in group] == [0, 1, 2, 3]
    assert [rollout.rewards for rollout in group] == [{"own": 1.0, "met": 4.0}] * 4
    assert {rollout.attempt for rollout in group} == {1}
    assert all(rollout.ok for rollout in group)


class Fragile(BaseEnv):
    """Its tool ends the process, as often as it is told to."""

    def __init__(self, folder, deaths):
        self.folder, self.deaths = Path(folder), deaths

    async def list_tools(self):
        return [ToolDefinition("break", "breaks", {"type": "object", "properties": {}})]

    async def run_tool(self, rollout_id, tool_name, **kw):
        died = len(list(self.folder.iterdir()))
        if died < self.deaths:
            (self.folder / f"death-{died}").touch()
            os._exit(1)
        return "it held"

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"held": float("it held" in str(messages))}


@pytest.mark.parametrize(("deaths", "ok"), [(2, True), (3, False)])
async def test_a_death_in_a_tool_is_not_told_to_the_model(tmp_path, deaths, ok):
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "break", "arguments": "{}"}]}
    async with hosted(Fragile, constructor_args={"folder": str(tmp_path), "deaths": deaths}) as host:
        settings = RolloutSettings(sampling=Sampling(seed=1))
        (rollout,) = await run_group(host, examples(1)[0], ScriptedModel([calls, "done"]), settings, samples=[0])
    assert rollout.ok is ok
    if ok:
        assert rollout.rewards == {"held": 1.0}
    else:
        assert rollout.termination is Termination.ENV_ERROR
        assert rollout.reward is None
    assert not any("process" in str(message.get("content")) for message in rollout.messages)


class Reading(BaseEnv):
    """Dies once while it reads rows."""

    @staticmethod
    def dataset_preprocess(example, **kw):
        mark = Path(example["mark"])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return make_example([{"role": "user", "content": "?"}], {"i": example["i"]})

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


async def test_a_call_of_no_rollout_is_made_again_in_the_next_process(tmp_path):
    async with hosted(Reading) as host:
        rows = [{"i": number, "mark": str(tmp_path / "mark")} for number in range(5)]
        assert [example["task"]["i"] for example in await host.env.preprocess(rows)] == [0, 1, 2, 3, 4]
        host.env._pool._slots[0].process.kill("was told to end")
        assert len(await host.env.preprocess(rows)) == 5


async def test_a_call_of_no_rollout_that_kills_every_process_ends(tmp_path):
    class Always(Reading):
        @staticmethod
        def dataset_preprocess(example, **kw):
            os.kill(os.getpid(), signal.SIGKILL)

    async with hosted(Always) as host:
        with pytest.raises(EnvLost, match="SIGKILL"):
            await host.env.preprocess([{"i": 1}])


class Sending(BaseEnv):
    """Sends a process away that keeps neither session, parent, variables nor limits of where it came from."""

    async def run_tool(self, rollout_id, tool_name, **kw):
        import subprocess

        script = f"echo $$ >> {kw['pids']}; exec sleep 1000"
        lowered = ["prlimit", "--rss=0", "--locks=0"]
        subprocess.run(["env", "-i", "setsid", "--fork", *lowered, "sh", "-c", script], check=True)
        return str(os.getpid())

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


@pytest.mark.parametrize("end", ["closed", "killed", "worker killed"])
async def test_what_a_process_sent_away_ends_with_it(tmp_path, end):
    pids = tmp_path / "pids"
    async with hosted(Sending) as host:
        worker = int(await host.call("run_tool", "r", "send", deadline=60, pids=str(pids)))
        await until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        (stray,) = map(int, pids.read_text().split())
        assert is_running(stray)
        if end == "worker killed":
            os.kill(worker, signal.SIGKILL)
            await until(lambda: not is_running(stray))
        elif end == "killed":
            host.env._pool._slots[0].process.kill("was told to end")
            await until(lambda: not is_running(stray))
    await until(lambda: not is_running(stray))
    await until(lambda: not is_running(worker))
