"""The math environment as a user meets it: its own MCP server, generated tasks, solutions, and cheats."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

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

SERVERS = 4


def examples_of(level: str, rows: int, seed: int = 7) -> list[Example]:
    return list(load_examples(make_rows(level, rows=rows, seed=seed), MathEnvLocal))


def asked(messages) -> str:
    return next(each["content"] for each in reversed(messages) if each["role"] == "user")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[EnvHost]:
    """One for all tests: its servers are processes."""
    async with EnvHost(lambda: MathEnvLocal(SERVERS)) as opened:
        yield opened


with_host = pytest.mark.asyncio(loop_scope="module")


async def played(host: EnvHost, examples: list[Example], script: Callable | str) -> list[float | None]:
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


@with_host
@pytest.mark.parametrize("rows", [12, pytest.param(200, marks=pytest.mark.slow)])
async def test_demonstrations_at_once_earn_everything_through_the_real_calculator(host, rows):
    """Each its own answer, though they share servers."""
    examples = [example for level in LEVELS for example in examples_of(level, rows)]
    rewards = await played(host, examples, solver(examples))
    assert len(rewards) == rows * len(LEVELS)
    unsolved = [example for example, each in zip(examples, rewards, strict=True) if each != 1.0]
    assert [asked(example["prompt_messages"]) for example in unsolved] == []


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


@pytest.mark.parametrize("rows", [10, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("level", LEVELS)
async def test_cheats_earn_next_to_nothing(level, rows):
    examples = examples_of(level, rows)
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


@with_host
async def test_a_random_caller_earns_next_to_nothing(host):
    def call_something(messages):
        draw = random.Random(f"{asked(messages)} {len(messages)}")  # the same in whatever order they are played
        if draw.random() < 0.4:
            return f"<answer>{draw.randint(0, 500)}</answer>"
        a, b, sign = draw.randint(0, 99), draw.randint(0, 99), draw.choice("+-*/")
        return ToolCall("calculate", json.dumps({"expression": f"{a} {sign} {b}"}))

    rewards = await played(host, examples_of("arithmetic", 40), call_something)
    assert sum(rewards) / len(rewards) < 0.1


@with_host
async def test_by_hand_what_cannot_be_computed_is_an_error_for_the_model(host):
    env = host.env
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


async def test_the_workdir_scores_alike_without_the_class():
    env = ParallelMcpEnv(WORKDIR, LocalProvisioner(WORKDIR, 1))
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


@with_host
async def test_rows_of_a_file_like_gsm8k_are_played(host, tmp_path):
    rows = [
        {"question": f"What is {n} plus {n}?", "answer": f"{n}+{n}=<<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n}"}
        for n in range(8)
    ]
    (tmp_path / "gsm8k.jsonl").write_text("\n".join(map(json.dumps, rows)))
    examples = list(load_examples(find_rows(MathEnvLocal, str(tmp_path / "gsm8k.jsonl")), MathEnvLocal))
    rewards = await played(host, examples, solver(examples))
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


@pytest.mark.parametrize("examples", [2, pytest.param(4, marks=pytest.mark.slow)])
async def test_the_doctor_finds_nothing(examples):
    rows, _ = MathEnvLocal.load_dataset()
    report = await examine(MathEnvLocal, rows=rows[:200], examples=examples)
    assert (report.errors, report.warnings) == ([], [])
