"""Environments of skyrl-gym as ours, with the rows that SkyRL takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from openenv_world import page_command

from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import load_env_class
from benchmax.envs.types import ToolCall
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_batch

ROW = {
    "prompt": [{"role": "user", "content": "What is 2 + 2? End with #### and the number."}],
    "env_class": "gsm8k",
    "reward_spec": {"method": "rule", "ground_truth": "4"},
    "extra_info": {"max_turns": 3},
}


async def play(spec, script):
    env = load_env_class(spec)
    async with EnvHost(env) as host:
        (rollout,) = await run_batch(host, list(load_examples([ROW], env)), ScriptedModel(script))
    return rollout


@pytest.mark.parametrize(("says", "reward"), [("2 + 2 = 4\n#### 4", 1.0), ("#### 5", 0.0)])
async def test_an_answer_is_scored_by_its_own_reward(says, reward):
    rollout = await play("skyrl_gym:gsm8k", says)
    assert (rollout.rewards, rollout.ok) == ({"reward": reward}, True)


async def test_several_turns_are_acted_with_a_tool():
    script = [ToolCall("act", json.dumps({"text": "#### 5"})), ToolCall("act", json.dumps({"text": "#### 4"})), "done"]
    rollout = await play("skyrl_gym:gsm8k_multi_turn?multi_turn=true", script)
    first, second = (message["content"] for message in rollout.messages if message["role"] == "tool")
    assert first
    assert second.endswith("The episode is over.")
    assert rollout.reward > 1.0  # a little for the form of each turn, and 1 for the answer
    answered = await play("skyrl_gym:gsm8k_multi_turn?multi_turn=true", "#### 4")
    assert answered.reward == 1.0


async def test_one_that_is_not_registered_is_named():
    rollout = await play("skyrl_gym:nothing", "4")
    assert rollout.termination == "env_error"
    assert "nothing" in rollout.error.message


def test_the_commands_take_it(tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(ROW | {"n": n}) for n in range(4)))
    main = [sys.executable, "-c", "from benchmax.cli import main; main()", *page_command("skyrl_gym:")]
    done = subprocess.run(main, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "answers" / "rollouts.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [1.0] * 4
