"""verifiers' own loop on our environment, against an OpenAI-compatible server: tools, metrics, limits, failures."""

from __future__ import annotations

import asyncio
import json

import pytest
import verifiers.v1 as vf
from aiohttp import web
from renderers import Qwen3RendererConfig
from verifiers_world import config, evaluating, rows_file, run, token_server, training

from benchmax.errors import UsageError
from benchmax.testing import FakeModelServer
from trainer_world import SumEnv, Template, tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="session")

GONE = {"error": {"message": "engine gone"}}
ROWS = [{"prompt": f"What is {n} + 2?", "ground_truth": str(n + 2)} for n in (2, 3)]


def call(a: int, b: int) -> dict:
    arguments = json.dumps({"a": a, "b": b})
    function = {"name": "add", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def adds(body):
    """Calls the tool, then answers with what it said."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return last["content"]
    first = int(last["content"].split()[2])
    return call(first, 2)


async def play(script, env="trainer_world.SumEnv", *, folder, faults=(), times=1, **more):
    async with FakeModelServer(script, faults=faults) as server:
        episodes = await run(config(env, rows_file(folder, ROWS), **more), evaluating(server.base_url), times)
    return [trace for episode in episodes for trace in episode.traces], server


async def test_tools_run_and_components_are_rewards(tmp_path):
    traces, server = await play(adds, folder=tmp_path, times=3)
    assert len(traces) == 6
    for trace in traces:
        assert trace.ok
        assert {name: reward.score for name, reward in trace.rewards.items()} == {"correct": 1.0, "brief": 0.25}
        assert trace.reward == 1.25
        assert (trace.metrics["turns"], trace.metrics["tool_calls"]) == (2, 1)
        assert trace.stop_condition == "agent_completed"
        assert [message.role for message in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert trace.task.key == trace.task.data.example["id"]
    assert server.bodies[0]["tools"][0]["function"]["name"] == "add"


async def test_weights_of_the_environment_count(tmp_path):
    traces, _ = await play("4", "test_runs.Weighted", folder=tmp_path)
    assert sorted(trace.reward for trace in traces) == [0.5, 3.5]


class Weighted(SumEnv):
    reward_weights = {"correct": 3.0, "brief": 2.0}


async def test_a_limit_of_verifiers_ends_a_rollout_that_is_scored(tmp_path):
    traces, _ = await play(lambda body: call(1, 1), folder=tmp_path, agent={"max_turns": 3})
    for trace in traces:
        assert (trace.ok, trace.num_turns, trace.stop_condition) == (True, 3, "max_turns")
        assert trace.is_truncated
        assert "correct" in trace.rewards
        assert trace.info["benchmax"]["termination"] == "max_turns_exceeded"


async def test_a_limit_that_only_verifiers_counts(tmp_path):
    traces, _ = await play(lambda body: call(1, 1), folder=tmp_path, agent={"max_total_tokens": 1})
    for trace in traces:
        assert (trace.ok, trace.stop_condition) == (True, "max_total_tokens")
        assert trace.rewards["correct"].score == 0.0


async def test_a_model_that_fails_costs_no_sibling(tmp_path):
    traces, _ = await play(
        lambda body: web.json_response(GONE, status=500) if "3 + 2" in body["messages"][1]["content"] else adds(body),
        folder=tmp_path,
    )
    healthy, lost = sorted(traces, key=lambda trace: not trace.ok)
    assert healthy.reward == 1.25
    assert lost.stop_condition == "model_error"
    assert lost.rewards == {}
    assert "engine gone" in lost.last_error.message


async def test_a_reward_that_cannot_be_computed_is_no_zero(tmp_path):
    traces, _ = await play("?", folder=tmp_path)
    for trace in traces:
        assert (trace.ok, trace.stop_condition) == (False, "finished")
        assert "the judge was out" in trace.last_error.message
        assert trace.rewards == {}


class Slow(SumEnv):
    released: list[str] = []

    async def run_tool(self, rollout_id, tool_name, **arguments):
        await asyncio.sleep(60)

    async def release_rollout(self, rollout_id):
        self.released.append(rollout_id)


async def test_time_that_runs_out_is_scored_and_released(tmp_path):
    traces, _ = await play(adds, "test_runs.Slow", folder=tmp_path, agent={"timeout": {"rollout": 4.0}})
    for trace in traces:
        assert (trace.ok, trace.stop_condition) == (True, "time_budget_exceeded")
        assert trace.rewards["correct"].score == 0.0


async def test_siblings_that_fail_leave_a_group(tmp_path):
    answers = iter(["4", "?", "It is four, all told.", "twenty"])
    async with FakeModelServer(lambda body: next(answers)) as server:
        settings = config("trainer_world.RankedSumEnv", rows_file(tmp_path, ROWS[:1]), siblings=4)
        (episode,) = await run(settings, evaluating(server.base_url))
    found = sorted((trace.ok, trace.reward) for trace in episode.traces)
    assert found == [(False, 0.0), (True, 0.0), (True, 0.5), (True, 1.25)]


async def test_group_rewards_in_anothers_environment_are_refused(tmp_path):
    settings = config("trainer_world.RankedSumEnv", rows_file(tmp_path, ROWS[:1]), id="best-of-n")
    settings.agent.runtime = vf.SubprocessConfig()
    async with FakeModelServer("4") as server:
        (episode,) = await run(settings, evaluating(server.base_url))
    assert all("--env.siblings N" in trace.last_error.message for trace in episode.traces)


async def test_without_an_environment_it_says_what_to_name(tmp_path):
    with pytest.raises(UsageError, match=r"--env\.taskset\.env arithmetic"):
        list(vf.load_environment(config("", None)).taskset)


QWEN = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>",
        "</tool_response>", "<think>", "</think>")  # fmt: skip


async def test_native_tools_keep_the_sampled_tokens(tmp_path):
    """With a renderer of the model's own, tools travel in its template, and turns are added to the tokens sampled."""
    encode = tokenizer(Template("qwen", "{{ messages }}", "<|im_end|>", True))
    encode.add_special_tokens({"additional_special_tokens": list(QWEN)})
    encode.save_pretrained(tmp_path / "model")
    said = ['<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call><|im_end|>', "4<|im_end|>"]
    drawn, prompts = [], []

    def next_turn(prompt):
        ids = encode(said[len(drawn)], add_special_tokens=False)["input_ids"]
        prompts.append(prompt)
        drawn.append(ids)
        return ids, [-0.5] * len(ids)

    async with token_server(next_turn) as url:
        ctx = training(url, str(tmp_path / "model"), Qwen3RendererConfig())
        (episode,) = await run(config("trainer_world.SumEnv", rows_file(tmp_path, ROWS[:1])), ctx)
    (trace,) = episode.traces
    (branch,) = trace.branches
    assert trace.reward == 1.25
    assert prompts[1][: len(prompts[0]) + len(drawn[0])] == prompts[0] + drawn[0]
    assert branch.token_ids == prompts[1] + drawn[1]
    kept = [token for token, each in zip(branch.token_ids, branch.sampled_mask, strict=True) if each]
    assert kept == drawn[0] + drawn[1]
    assert '"name": "add"' in encode.decode(prompts[0])
    assert "<tool_response>\n4\n</tool_response>" in encode.decode(prompts[1])
