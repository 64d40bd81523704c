"""The math environment as a user meets it: its own MCP server, generated tasks, solutions, and cheats."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import pytest

from benchmax import EnvHost, RolloutSettings, ScriptedModel, ToolCall, load_examples, run_batch
from benchmax.doctor import examine
from benchmax.envs.catalogue import environments
from benchmax.envs.demonstration import turn_after
from benchmax.envs.loading import find_rows, load_env_class
from benchmax.envs.math.levels import LEVELS, make_rows
from benchmax.envs.math.math_env import WORKDIR, MathEnvLocal, MathEnvSkypilot
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner
from benchmax.envs.types import Example, Transcript

SERVERS = 8


def examples_of(level: str, rows: int, seed: int = 7) -> list[Example]:
    return list(load_examples(make_rows(level, rows=rows, seed=seed), MathEnvLocal))


def asked(messages) -> str:
    return next(each["content"] for each in reversed(messages) if each["role"] == "user")


async def played(examples: list[Example], script: Callable | str, servers: int = SERVERS) -> list[float | None]:
    async with EnvHost(lambda: MathEnvLocal(servers)) as host:
        rollouts = await run_batch(host, examples, ScriptedModel(script), RolloutSettings(max_turns=7))
    assert [rollout.error for rollout in rollouts if rollout.error] == []
    return [rollout.reward for rollout in rollouts]


def solver(examples: list[Example]) -> Callable:
    """Plays `demonstrate` of whichever example is asked."""
    by_question = {asked(example["prompt_messages"]): example for example in examples}

    async def next_turn(messages):
        last = max(n for n, each in enumerate(messages) if each["role"] == "user")
        results = [[each["content"]] for each in messages[last:] if each["role"] == "tool"]
        env = MathEnvLocal.__new__(MathEnvLocal)
        return await turn_after(env.demonstrate, by_question[asked(messages)], results)

    return next_turn


async def solved_by_demonstration(rows: int) -> list[str]:
    examples = [example for level in LEVELS for example in examples_of(level, rows)]
    rewards = await played(examples, solver(examples))
    assert len(examples) == rows * len(LEVELS)
    return [asked(example["prompt_messages"]) for example, each in zip(examples, rewards, strict=True) if each != 1.0]


async def test_demonstrations_earn_everything_through_the_real_calculator():
    assert await solved_by_demonstration(40) == []


@pytest.mark.slow
async def test_two_hundred_demonstrations_of_each_level_earn_everything():
    assert await solved_by_demonstration(200) == []


CHEATS = {
    "empty tags": lambda messages: "<answer></answer>",
    "echo": lambda messages: f"<answer>{asked(messages).rstrip('?')}</answer>",
    "last words": lambda messages: f"<answer>{asked(messages).rstrip('?. ').split()[-1]}</answer>",
    "spam": lambda messages: "".join(f"<answer>{n}</answer>" for n in range(300)),
    "a list": lambda messages: f"<answer>{', '.join(map(str, range(60)))}</answer>",
    "alternatives": lambda messages: f"<answer>{' or '.join(map(str, range(60)))}</answer>",
    "the shown answer": lambda messages: "<answer>391</answer>",
    "zero": lambda messages: "<answer>0</answer>",
    "twelve": lambda messages: "<answer>12</answer>",
    "everything": lambda messages: "<answer>(-\\infty, \\infty)</answer>",
    "a true statement": lambda messages: "<answer>x = x</answer>",
    "the words": lambda messages: "<answer>ground_truth</answer>",
}


@pytest.mark.parametrize("level", LEVELS)
async def test_cheats_earn_next_to_nothing(level):
    examples = examples_of(level, 40)
    env = MathEnvLocal(1, provision_at_init=False)  # none of them calls a tool
    try:
        for name, cheat in CHEATS.items():
            texts = [cheat(example["prompt_messages"]) for example in examples]
            rewards = [
                (await env.compute_reward("r", [{"role": "assistant", "content": text}], example["task"]))["match"]
                for text, example in zip(texts, examples, strict=True)
            ]
            assert sum(rewards) / len(rewards) < 0.2, name
    finally:
        await env.shutdown()


async def test_a_random_caller_earns_next_to_nothing():
    draw = random.Random(1)

    def call_something(messages):
        if draw.random() < 0.4:
            return f"<answer>{draw.randint(0, 500)}</answer>"
        a, b, sign = draw.randint(0, 99), draw.randint(0, 99), draw.choice("+-*/")
        return ToolCall("calculate", json.dumps({"expression": f"{a} {sign} {b}"}))

    rewards = await played(examples_of("arithmetic", 40), call_something)
    assert sum(rewards) / len(rewards) < 0.1


async def test_a_hundred_rollouts_at_once_each_get_their_own_answer():
    examples = examples_of("expressions", 100)
    assert await played(examples, solver(examples), servers=25) == [1.0] * 100


async def test_by_hand_what_cannot_be_computed_is_an_error_for_the_model():
    env = MathEnvLocal(1)
    try:
        assert [tool.name for tool in await env.list_tools()] == ["calculate"]
        await env.init_rollout("one")
        assert await env.run_tool("one", "calculate", expression="2 ** 10 / 3") == "1024/3"
        for expression in ("1 / 0", "9**9**9", "open('/etc/passwd').read()", "ground_truth", "task"):
            result = await env.run_tool("one", "calculate", expression=expression)
            assert result.is_error
            assert "cannot be computed" in result.text
        messages = [{"role": "assistant", "content": "<answer>341 1/3</answer>"}]
        assert await env.compute_reward("one", messages, {"ground_truth": "1024/3"}) == {"match": 1.0}
        await env.release_rollout("one")
    finally:
        await env.shutdown()


async def test_the_workdir_scores_alike_without_the_class():
    env = ParallelMcpEnv(WORKDIR, LocalProvisioner(WORKDIR, 2))
    try:
        for name, answer, match in (("a", "3,901", 1.0), ("b", "47 * 83", 0.0)):
            await env.init_rollout(name)
            messages = Transcript([{"role": "user", "content": "?"}], 1)
            messages.append({"role": "assistant", "content": f"<answer>{answer}</answer>"})
            assert await env.compute_reward(name, messages, {"ground_truth": "3901"}) == {"match": match}
    finally:
        await env.shutdown()


async def test_the_prompt_holds_no_answer_and_ids_no_path():
    for example in examples_of("words", 20):
        shown = json.dumps(example["prompt_messages"])
        assert "ground_truth" not in shown
        assert "steps" not in shown
        assert str(WORKDIR.parent) not in json.dumps(example)
    assert [each["id"] for each in examples_of("sums", 5)] == [each["id"] for each in examples_of("sums", 5)]


async def test_rows_of_a_file_like_gsm8k_are_played(tmp_path):
    rows = [
        {"question": f"What is {n} plus {n}?", "answer": f"{n}+{n}=<<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n}"}
        for n in range(8)
    ]
    (tmp_path / "gsm8k.jsonl").write_text("\n".join(map(json.dumps, rows)))
    examples = list(load_examples(find_rows(MathEnvLocal, str(tmp_path / "gsm8k.jsonl")), MathEnvLocal))
    rewards = await played(examples, solver(examples), servers=4)
    assert rewards == [1.0] * 8


def test_hub_sets_have_short_names(monkeypatch):
    fetched = []
    monkeypatch.setattr("datasets.load_dataset", lambda *given, **named: fetched.append((given, named)) or [])
    find_rows(MathEnvLocal, "gsm8k")
    MathEnvLocal.load_dataset("math500")
    MathEnvLocal.load_dataset("owner/name", split="test")
    assert fetched == [
        (("openai/gsm8k",), {"split": "train", "name": "main"}),
        (("HuggingFaceH4/MATH-500",), {"split": "test"}),
        (("owner/name",), {"split": "test"}),
    ]


def test_it_has_a_name():
    assert load_env_class("math") is MathEnvLocal
    assert environments()["math"] == "benchmax.envs.math.math_env.MathEnvLocal"


def test_machines_are_described_before_any_is_rented():
    env = MathEnvSkypilot(cloud="aws", num_nodes=3, servers_per_node=4, provision_at_init=False)
    assert env.num_servers == 12
    asyncio.run(env.shutdown())


async def test_the_doctor_finds_nothing():
    rows, _ = MathEnvLocal.load_dataset()
    report = await examine(MathEnvLocal, rows=rows)
    assert (report.errors, report.warnings) == ([], [])
