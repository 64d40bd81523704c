"""A model as a tool and a simulated user, as the examples have them, against a real server with faults."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from benchmax import EnvHost, Sampling, ScriptedModel, evaluate, load_examples
from benchmax.doctor import examine
from benchmax.envs.types import ToolCall
from benchmax.rollouts.settings import RolloutSettings
from benchmax.testing import FakeModelServer

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_an_expert_is_asked_once_for_each_question_and_its_cost_is_recorded() -> None:
    expert = example("model_as_tool")
    asked: list[str] = []

    async def slow(body: dict[str, Any]) -> str:
        asked.append(body["messages"][-1]["content"])
        await asyncio.sleep(0.01)  # so that siblings ask while the first question is under way
        return str(expert.answer_book(body))

    async with (
        FakeModelServer(slow) as server,
        EnvHost(lambda: expert.AskExpert(base_url=server.base_url, price=(1.0, 2.0))) as host,
    ):
        made = load_examples(expert.ROWS, expert.AskExpert)
        done = await evaluate(host, made, ScriptedModel(expert.student), group_size=25, concurrency=100)
        book = host.env.expert  # type: ignore[attr-defined]
        assert not host.env.asked  # type: ignore[attr-defined]
    assert sorted(asked) == sorted(row["prompt"] for row in expert.ROWS)
    assert (book.calls, book.cached) == (4, 96)
    spent = sum(rollout.rewards["expert_usd"] for rollout in done.rollouts)
    assert spent == pytest.approx(book.usd)
    assert book.usd > 0
    assert {rollout.reward for rollout in done.rollouts} == {1.0}, "what it costs does not change the reward"


async def test_the_budget_of_a_rollout_ends_and_a_lost_expert_is_an_error_the_model_reads() -> None:
    expert = example("model_as_tool")
    questions = iter(['{"question": "Peru?"}', '{"question": "Chad?"}'])
    texts: list[str] = []

    def greedy(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            texts.append(messages[-1]["content"])
        call = next(questions, None)
        return ToolCall("ask_expert", call) if call else "<answer>Lima</answer>"

    async with (
        FakeModelServer(expert.answer_book) as server,
        EnvHost(lambda: expert.AskExpert(base_url=server.base_url)) as host,
    ):
        (rollout,) = (
            await evaluate(host, load_examples(expert.ROWS[:1], expert.AskExpert), ScriptedModel(greedy))
        ).rollouts
    assert texts == ["Lima", "Error: The expert has no more time for you. Answer now."]
    assert rollout.rewards["expert_calls"] == 1.0

    async with (
        FakeModelServer("never", faults=["error"] * 9) as server,
        EnvHost(lambda: expert.AskExpert(base_url=server.base_url)) as host,
    ):
        host.env.expert.model.backoff = 0.01  # type: ignore[attr-defined]
        done = await evaluate(host, load_examples(expert.ROWS[:1], expert.AskExpert), ScriptedModel(expert.student))
        assert not host.env.expert.answers, "a failure is not remembered"  # type: ignore[attr-defined]
    assert "cannot be reached" in str(done.rollouts[0].messages[-1]["content"])
    assert done.rollouts[0].ok


async def test_every_simulated_user_has_a_wish_of_its_own() -> None:
    travel = example("simulated_user")
    async with (
        FakeModelServer(travel.customer) as server,
        EnvHost(lambda: travel.Travel(base_url=server.base_url)) as host,
    ):
        made = list(load_examples(travel.ROWS, travel.Travel))
        assert all(
            row["city"] not in json.dumps(each["prompt_messages"]) for row, each in zip(travel.ROWS, made, strict=True)
        )
        done = await evaluate(host, made, ScriptedModel(travel.agent), group_size=13, concurrency=104)
        assert not host.env.talks  # type: ignore[attr-defined]
    assert done.report.components["booked"].mean == 1.0
    assert len({str(rollout.messages[-1]["content"]) for rollout in done.rollouts}) == len(travel.ROWS)


async def test_a_user_who_is_asked_too_much_says_nothing_more() -> None:
    travel = example("simulated_user")
    settings = RolloutSettings(max_turns=8, max_tool_calls=8, sampling=Sampling())
    async with (
        FakeModelServer(travel.customer) as server,
        EnvHost(lambda: travel.Travel(base_url=server.base_url)) as host,
    ):
        nagging = ScriptedModel(lambda messages: ToolCall("say", '{"text": "Well?"}'))
        done = await evaluate(host, load_examples(travel.ROWS[:1], travel.Travel), nagging, settings)
    heard = [message["content"] for message in done.rollouts[0].messages if message["role"] == "tool"]
    assert heard.count("I would like to travel.") == 4
    assert heard[-1].startswith("Error: The customer has lost patience")
    assert done.rollouts[0].reward == 0.0


async def test_the_doctor_finds_no_error_in_them() -> None:
    expert, travel = example("model_as_tool"), example("simulated_user")
    async with FakeModelServer(expert.answer_book) as server:
        rows = expert.ROWS * 4
        found = await examine(expert.AskExpert, {"base_url": server.base_url}, rows=rows, examples=2)
        assert found.ok, str(found)
    async with FakeModelServer(travel.customer) as server:
        found = await examine(travel.Travel, {"base_url": server.base_url}, rows=travel.ROWS * 2, examples=2)
        assert found.ok, str(found)
