"""The published rubric functions, against a real server on the loopback."""

import inspect
import json
import re

import pytest

import benchmax.rubrics
from benchmax.envs.types import Transcript, Unscored
from benchmax.errors import ConfigError
from benchmax.rubrics import (
    Rubric,
    evaluate_rubric_ranking,
    evaluate_single_rubric,
    functions,
    generate_instance_wise_adaptive_rubrics,
    group_rubric_based_reward_function,
    group_rubric_ranked_reward_function,
    single_rubric_based_reward_function,
)
from benchmax.testing import FakeModelServer

CLEAR = Rubric("Is Clear", "It is easy to follow.")
RUDE = Rubric("Rude", "It insults the reader.", type="negative")
ADAPTIVE = [
    {"title": "Large", "description": "It is 1.", "type": "positive"},
    {"title": "Small", "description": "It is 0.", "type": "negative"},
]


def fenced(prompt):
    return dict(re.findall(r'<data name="([^"]*)" id="\w+">\n(.*?)\n</data id', prompt, re.DOTALL))


def judge(body):
    """Scores a response by the number it is, ranks by number, writes fixed rubrics, and refuses "mute"."""
    prompt = body["messages"][-1]["content"]
    texts = fenced(prompt)
    texts.pop("question")
    if '"rubrics"' in prompt:
        return json.dumps({"rubrics": ADAPTIVE})
    if "mute" in texts.values():
        return "I refuse"
    if '"tiers"' in prompt:
        levels = sorted({float(text) for text in texts.values()}, reverse=True)
        return json.dumps({"tiers": [[name for name in texts if float(texts[name]) == level] for level in levels]})
    score = 1 - int(texts["response"]) if "Criterion: Small" in prompt else int(texts["response"])
    return json.dumps({"reasoning": "because", "score": score})


@pytest.fixture
async def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(functions, "ADAPTIVE_CACHE", functions.RubricCache())
    async with FakeModelServer(judge) as running:
        yield running


def group(server, completions, **options):
    count = len(completions)
    return {
        "rollout_ids": [f"r{n}" for n in range(count)],
        "completions": completions,
        "ground_truths": [options.pop("truth", "")] * count,
        "llm_judge_url": server.base_url,
        "prompt": "q",
        "model": "judge",
        **options,
    }


def test_the_published_names_and_signatures():
    assert sorted(benchmax.rubrics.__all__) == [
        "Rubric",
        "evaluate_rubric_ranking",
        "evaluate_single_rubric",
        "generate_instance_wise_adaptive_rubrics",
        "group_rubric_based_reward_function",
        "group_rubric_ranked_reward_function",
        "single_rubric_based_reward_function",
    ]
    published = {
        evaluate_single_rubric: "rubric question response model_name base_url ground_truth api_key timeout "
        "enable_logging",
        single_rubric_based_reward_function: "rollout_id completion ground_truth rubrics llm_judge_url prompt model "
        "api_key timeout",
        group_rubric_based_reward_function: "rollout_ids completions ground_truths llm_judge_url prompt model timeout "
        "existing_rubrics use_adaptive_rubrics static_rubrics",
    }
    for function, names in published.items():
        parameters = list(inspect.signature(function).parameters)
        assert parameters[: len(names.split())] == names.split()
    assert "api_key" in inspect.signature(group_rubric_based_reward_function).parameters
    ranked = inspect.signature(group_rubric_ranked_reward_function).parameters
    assert {"api_key", "static_rubrics", "include_ground_truth", "below_gt_ceiling"} <= set(ranked)
    assert {"anchors", "band_edges", "anchor_labels"} <= set(inspect.signature(evaluate_rubric_ranking).parameters)


async def test_evaluate_single_rubric(server):
    result = await evaluate_single_rubric(RUDE, "q", "1", "judge", server.base_url, api_key="sk-j")
    assert (result["score"], result["reasoning"]) == (1.0, "because")
    assert json.loads(result["llm_output"])["score"] == 1
    assert "error" not in result
    assert server.headers[-1]["Authorization"] == "Bearer sk-j"
    assert server.bodies[-1]["temperature"] == 0.0
    assert server.bodies[-1]["model"] == "judge"


async def test_a_failing_judge_gives_none_and_an_error(server):
    result = await evaluate_single_rubric(CLEAR, "q", "mute", "judge", server.base_url)
    assert result["score"] is None
    assert "no usable verdict" in result["error"]


async def test_single_reward_takes_the_rewards_own_arguments(server):
    messages = Transcript(
        [{"role": "user", "content": "the question"}, {"role": "assistant", "content": "1"}], completion_start=1
    )
    rewards = await single_rubric_based_reward_function(
        "r", messages, {"answer": 4}, [CLEAR, RUDE], server.base_url, messages.prompt, "judge"
    )
    assert rewards == {"rubric_is_clear": 1.0, "rubric_rude": 0.0}
    texts = fenced(server.bodies[-1]["messages"][-1]["content"])
    assert texts == {"question": "the question", "reference answer": '{"answer": 4}', "response": "1"}


async def test_single_reward_with_a_failing_judge_is_unscored(server):
    rewards = await single_rubric_based_reward_function("r", "mute", "", [CLEAR], server.base_url, "q", "judge")
    assert isinstance(rewards["rubric_is_clear"], Unscored)


async def test_group_reward_static_and_adaptive(server):
    arguments = group(server, ["1", "0"], static_rubrics=[CLEAR], use_adaptive_rubrics=True, api_key="sk-g")
    assert await group_rubric_based_reward_function(**arguments) == [
        {"rubric_is_clear": 1.0, "rubric_adaptive": 1.0},
        {"rubric_is_clear": 0.0, "rubric_adaptive": 0.0},
    ]
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-g"}
    kept = functions.ADAPTIVE_CACHE.get("q")
    assert {rubric.title for rubric in kept} == {"Large", "Small"}


async def test_group_reward_with_rubrics_of_ones_own(server):
    arguments = group(server, ["1", "0", "mute"], existing_rubrics=[CLEAR, RUDE])
    high, low, mute = await group_rubric_based_reward_function(**arguments)
    assert (high, low) == ({"rubric_adaptive": 0.5}, {"rubric_adaptive": 0.5})
    assert isinstance(mute["rubric_adaptive"], Unscored)


async def test_when_no_rubrics_can_be_written_the_group_is_unscored():
    async with FakeModelServer("no") as broken:
        arguments = group(broken, ["1", "0"], use_adaptive_rubrics=True)
        rewards = await group_rubric_based_reward_function(**arguments)
    assert all(isinstance(reward["rubric_adaptive"], Unscored) for reward in rewards)


async def test_ranked_reward(server):
    arguments = group(server, ["9", "5", "3", "1"], truth="5", static_rubrics=[CLEAR])
    rewards = await group_rubric_ranked_reward_function(**arguments)
    assert [reward["rubric_is_clear"] for reward in rewards] == pytest.approx([1.0, 0.5, 0.15, 0.0])
    assert server.requests == 1
    rewards = await group_rubric_ranked_reward_function(**arguments, include_ground_truth=False)
    assert [reward["rubric_is_clear"] for reward in rewards] == pytest.approx([0.875, 0.625, 0.375, 0.125])


async def test_a_group_of_uneven_lists_is_refused(server):
    arguments = {**group(server, ["1", "0"], static_rubrics=[CLEAR]), "ground_truths": ["x"]}
    for function in (group_rubric_based_reward_function, group_rubric_ranked_reward_function):
        with pytest.raises(ConfigError, match="1 ground truths"):
            await function(**arguments)


async def test_evaluate_ranking_with_anchors(server):
    result = await evaluate_rubric_ranking(
        CLEAR, "q", ["9", "4", "1"], "judge", server.base_url,
        anchors=["5", "2"], band_edges=[0.8, 0.2], anchor_labels=["expert", "novice"],
    )  # fmt: skip
    assert result["scores"] == pytest.approx([1.0, 0.5, 0.0])
    assert result["tiers"] == [[0], ["expert"], [1], ["novice"], [2]]
    with pytest.raises(ConfigError, match="not both"):
        await evaluate_rubric_ranking(CLEAR, "q", ["1"], "judge", server.base_url, "truth", anchors=["5"])


async def test_evaluate_ranking_with_a_failing_judge(server):
    result = await evaluate_rubric_ranking(CLEAR, "q", ["1", "mute"], "judge", server.base_url, "2")
    assert result["scores"] == [None, None]
    assert "no usable verdict" in result["error"]


async def test_generate_rubrics(server):
    rubrics = await generate_instance_wise_adaptive_rubrics("q", ["1", "0"], "judge", server.base_url, [CLEAR])
    assert [(rubric.title, rubric.type) for rubric in rubrics] == [("Large", "positive"), ("Small", "negative")]
