"""Tasksets of verifiers as environments of ours: the same prompts, scored by the same rewards."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import verifiers.v1 as vf
from verifiers_world import evaluating, run

from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import load_env_class, own_rows
from benchmax.errors import EnvDefinitionError, NotFoundError, UsageError
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_batch
from benchmax.testing import FakeModelServer

pytestmark = pytest.mark.asyncio(loop_scope="session")
HERE = Path(__file__).parent


def turned(messages):
    return messages[-1]["content"].split()[1].rstrip(".")[::-1]


async def play(answer, spec="verifiers:word_taskset?words=4"):
    env = load_env_class(spec)
    async with EnvHost(env) as host:
        return await run_batch(host, list(load_examples(own_rows(env), env)), ScriptedModel(answer))


async def test_its_rewards_score_our_rollouts():
    rollouts = await play(turned)
    assert len(rollouts) == 4
    for rollout in rollouts:
        assert rollout.rewards == {"reversed_word": 2.0, "lower": 1.0, "turns": 0.5}
        assert (rollout.reward, rollout.ok) == (3.5, True)
        assert [message["role"] for message in rollout.messages] == ["system", "user", "assistant"]


async def test_the_total_is_the_one_of_verifiers():
    ours = {rollout.messages[1]["content"]: rollout.reward for rollout in await play(lambda messages: "ABC")}
    settings = vf.resolve_env_config({
        "taskset": {"id": "word_taskset", "words": 4},
        "agent": {"harness": {"id": "one_turn_harness"}, "runtime": {"type": "subprocess"}},
    })  # fmt: skip
    async with FakeModelServer("ABC") as server:
        episodes = await run(settings, evaluating(server.base_url))
    theirs = {trace.task.data.prompt: trace.reward for episode in episodes for trace in episode.traces}
    assert ours == theirs


async def test_a_scorer_that_fails_is_no_zero():
    for rollout in await play(lambda messages: "crash"):
        assert (rollout.reward, rollout.termination) == (None, "reward_error")
        assert "the scorer is out" in rollout.error.message


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("verifiers:no_such_taskset", NotFoundError, "no taskset 'no_such_taskset'"),
        ("verifiers:word_taskset?nonsense=1", UsageError, "does not take these settings"),
        ("verifiers:own_env_taskset", EnvDefinitionError, "plays an interaction of its own"),
    ],
)
async def test_what_cannot_be_played_is_named(spec, error, says):
    with pytest.raises(error, match=says):
        own_rows(load_env_class(spec))


async def test_the_commands_take_it(tmp_path):
    def benchmax(*words):
        main = [sys.executable, "-c", "from benchmax.cli import main; main()", *words]
        return subprocess.run(main, cwd=HERE, capture_output=True, text=True, timeout=200)

    page = (HERE.parents[2] / "docs" / "trainers" / "imports.md").read_text("utf-8")
    (command,) = re.findall(r"^benchmax (eval verifiers:.*)$", page, re.MULTILINE)
    done = benchmax(*shlex.split(command)[:-1], str(tmp_path / "e"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "e" / "rollouts.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert {line["task"]["id"] for line in lines if line["rewards"]["reversed_word"] == 2.0}
    looked = benchmax("validate", "verifiers:word_taskset")
    assert "Traceback" not in looked.stderr
    assert looked.returncode in (0, 1), looked.stderr
