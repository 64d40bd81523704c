"""The tasks: solved by their demonstrations alone, the same everywhere, and not to be guessed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from benchmax.doctor import examine
from benchmax.envs.crm.company import company_of
from benchmax.envs.crm.crm_env import CRMEnvInProcess
from benchmax.envs.crm.org import embedded
from benchmax.envs.crm.reward import exact_match, fuzzy_match, score
from benchmax.envs.crm.tasks import KINDS, LEVELS, make_rows
from benchmax.envs.crm.tools import TOOLS
from benchmax.envs.types import Example, Transcript
from benchmax.errors import EnvDefinitionError
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_rollout
from ready_world import demonstrator, play_all
from salesforce_world import examples

SOAK = pytest.param(200, marks=pytest.mark.slow)


@pytest.mark.parametrize("rows", [40, SOAK])
@pytest.mark.parametrize("level", LEVELS)
async def test_demonstrations_score_everything_at_once(level, rows):
    """All of them at the same time, about several companies: no rollout sees another's records."""
    seed = 7 if rows == 40 else 8
    rollouts = await play_all(CRMEnvInProcess(level=level), examples(level, rows, seed))
    assert [rollout.rewards for rollout in rollouts] == [{"match": 1.0}] * rows


async def test_a_hundred_rollouts_at_once_about_many_companies():
    chosen = [each for seed in range(10) for each in examples("steps", 10, seed)]
    assert len({(each["init_rollout_args"] or {})["company"] for each in chosen}) == 10
    rollouts = await play_all(CRMEnvInProcess(level="steps"), chosen)
    assert {rollout.reward for rollout in rollouts} == {1.0}


async def test_a_company_is_made_once_however_many_are_asked_about(monkeypatch):
    made: list[int] = []
    company = company_of(0)
    monkeypatch.setattr(embedded, "company_of", lambda seed: made.append(seed) or company)
    env = CRMEnvInProcess()
    seeds = range(990_000, 990_018)
    await asyncio.gather(*(env.init_rollout(f"{seed} {n}", company=seed) for seed in seeds for n in range(2)))
    for seed in seeds:
        assert "Warranty" in await env.run_tool(f"{seed} 0", "search_knowledge_articles", search_term="warranty lamps")
    assert sorted(made) == list(seeds)


async def test_all_tools_are_demonstrated_and_all_kinds_are_asked():
    chosen = [each for level in LEVELS for each in examples(level, 120)]
    assert {(each["task"] or {})["kind"] for each in chosen} == set(KINDS)
    rollouts = await play_all(CRMEnvInProcess(level="reports"), chosen)
    assert {event.name for rollout in rollouts for event in rollout.tool_events} == set(TOOLS)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_are_the_same_everywhere_and_all_different(level):
    rows = make_rows(level, rows=80, seed=3)
    made = f"make_rows({level!r}, rows=80, seed=3)"
    code = f"import json; from benchmax.envs.crm.tasks import make_rows; print(json.dumps({made}))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": "5"}, cwd="/"
    )
    assert json.loads(elsewhere.stdout) == rows
    ids = [CRMEnvInProcess.dataset_preprocess(row)["id"] for row in rows]
    assert len(set(ids)) == len(rows)
    assert len({row["persona"] + row["query"] for row in rows}) == len(rows)  # the question alone says what is right
    assert not set(ids) & {CRMEnvInProcess.dataset_preprocess(row)["id"] for row in make_rows(level, rows=80, seed=4)}


@pytest.mark.parametrize("level", LEVELS)
def test_questions_do_not_hold_their_answers(level):
    for example in examples(level, 80):
        [truth] = (example["task"] or {})["ground_truth"]
        asked = str(example["prompt_messages"][-1]["content"])
        assert truth == "None" or truth.lower() not in asked.lower().replace("?", "").split()


# Those who do not solve them


def caller(level: str, example: Example) -> ScriptedModel:
    """A model that makes three random calls and answers with something that it read."""
    rng = random.Random(str(example["id"]))
    names = list(LEVELS[level].tools or TOOLS)

    def turn(messages: list[Any]) -> Any:
        said = messages[len(example["prompt_messages"]) :]
        seen = [word for message in messages for word in str(message.get("content")).replace('"', " ").split()]
        if len(said) >= 6:
            return f"<answer>{rng.choice(seen)}</answer>"
        name = rng.choice(names)
        given = {each: rng.choice(seen) for each in (TOOLS[name].definition.input_schema or {})["properties"]}
        return {"role": "assistant", "content": "", "tool_calls": [{"name": name, "arguments": json.dumps(given)}]}

    return ScriptedModel(turn)


@pytest.mark.parametrize("level", LEVELS)
async def test_a_random_caller_earns_next_to_nothing(level):
    rollouts = await play_all(CRMEnvInProcess(level=level), examples(level, 120), lambda each: caller(level, each))
    assert sum(rollout.reward for rollout in rollouts) / 120 < 0.05
    assert {len(rollout.tool_events) for rollout in rollouts} == {3}


def listed(kind: str) -> str:
    """Every answer of a kind that one can know without asking."""
    months = "January February March April May June July August September October November December"
    return {"monthly_trend_analysis": months, "best_region_identification": "CA CO FL IL MA NY OR TX"}.get(
        kind, " ".join(map(str, range(1, 91)))
    )


CHEATS = {
    "nothing": lambda example: "",
    "empty tags": lambda example: "<answer></answer>",
    "none": lambda example: "<answer>None</answer>",
    "echo": lambda example: f"<answer>{example['prompt_messages'][-1]['content']}</answer>",
    "prompt": lambda example: "\n".join(str(each["content"]) for each in example["prompt_messages"]),
    "shown answer": lambda example: "<answer>60</answer>",
    "everything": lambda example: f"<answer>{listed(example['task']['kind'])}</answer>",
    "many answers": lambda example: "".join(f"<answer>{n}</answer>" for n in listed(example["task"]["kind"]).split()),
    "unclosed": lambda example: f"<answer>{example['task']['ground_truth'][0]}",
    "truth then more": lambda example: f"<answer>{example['task']['ground_truth'][0]}</answer><answer>x</answer>",
}


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize("level", LEVELS)
async def test_cheats_do_not_pay(level, name):
    rollouts = await play_all(
        CRMEnvInProcess(level=level), examples(level, 60), lambda each: ScriptedModel(CHEATS[name](each))
    )
    assert sum(rollout.reward for rollout in rollouts) / 60 < 0.1


async def test_listing_what_a_tool_returned_does_not_pay():
    """Every Id that the first two calls of the solution bring up, as the answer."""
    chosen = examples("steps", 60)
    env = CRMEnvInProcess(level="steps")

    def lister(example: Example) -> ScriptedModel:
        solver = demonstrator(env, example)

        async def turn(messages: list[Any]) -> Any:
            said = [message for message in messages[len(example["prompt_messages"]) :] if message["role"] == "tool"]
            if len(said) < 2:
                found = await solver.script(messages)  # type: ignore[operator]
                if not isinstance(found, str):
                    return list(found)
            ids = [word for each in said for word in str(each["content"]).replace('"', " ").split() if len(word) == 15]
            return f"<answer>{','.join(ids)}</answer>"

        return ScriptedModel(turn)

    rollouts = await play_all(env, chosen, lister)
    kinds = Counter[str]()
    for example, rollout in zip(chosen, rollouts, strict=True):
        kinds[(example["task"] or {})["kind"]] += rollout.reward
    solved = kinds.pop("contact_lookup") + kinds.pop("policy_violation_identification")  # whose results are that short
    assert solved > 0
    assert sum(kinds.values()) / 36 < 0.3


# Rewards


@pytest.mark.parametrize(
    ("answer", "truths", "worth"),
    [
        ("A1, b2", ["B2", "a1"], 1.0), ("a|b c", ["a", "b", "c"], 1.0), ("a, b", ["a"], 0.5), ("a a a", ["a"], 1.0),
        ("", [], 1.0), ("", ["a"], 0.0), ("a", [], 0.0), ("None", ["None"], 1.0), ("a b c d", ["e"], 0.0),
    ],
)  # fmt: skip
def test_exact_match_is_intersection_over_union(answer, truths, worth):
    assert exact_match(answer, truths) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("answer", "truth", "worth"),
    [
        ("The Old Mill.", "old mill", 1.0), ("mill", "old mill", 2 / 3), ("48 months", "48", 2 / 3), ("", "48", 0.0),
        ("48 48", "48", 2 / 3), ("the", "a", 1.0), ("x", "48", 0.0),
    ],
)  # fmt: skip
def test_fuzzy_match_is_the_f1_of_words(answer, truth, worth):
    assert fuzzy_match(answer, truth) == pytest.approx(worth)


def test_an_answer_counts_wherever_the_conversation_ends():
    said: list[Any] = [{"role": "assistant", "content": "<answer>a1</answer>"}, {"role": "tool", "content": "late"}]
    whole = Transcript([{"role": "user", "content": "<answer>no</answer>"}, *said], 1)
    assert score(whole, ["A1"], "exact_match") == 1.0
    assert score("It is <answer>A1</answer>.", ["a1"], "exact_match") == 1.0
    assert score("a1", ["a1"], "exact_match") == 0.0
    assert score("<answer>a1</answer>", ["a1"], "other") == 0.0


def test_long_answers_are_scored_in_time():
    for text in ("<answer>" * 200_000, "<answer>" + "a," * 500_000 + "</answer>", "</answer><answer>" * 100_000):
        assert score(text, ["b"], "exact_match") == score(text, ["b"], "fuzzy_match") == 0.0


# Rows and levels


async def test_rows_in_their_published_shape_load_and_score():
    row = {
        "idx": 3, "task": "handle_time", "persona": "You are thorough.", "query": "Who is fastest?",
        "answer": ["005A", "005B"], "reward_metric": "exact_match",
        "metadata": '{"required": "Today is Monday.", "optional": "x"}',
    }  # fmt: skip
    example = CRMEnvInProcess.dataset_preprocess(row)
    assert example["prompt_messages"] == [
        {"role": "user", "content": "You are thorough.\nhandle_time\nToday is Monday.\nWho is fastest?"}
    ]
    async with EnvHost(CRMEnvInProcess(level="reports")) as host:
        rollout = await run_rollout(host, example, ScriptedModel("<answer>005b</answer>"))
    assert rollout.rewards == {"match": 0.5}
    assert CRMEnvInProcess().demonstrate(example) is None


@pytest.mark.parametrize("column", ["task", "persona", "query", "answer", "reward_metric"])
def test_a_missing_column_is_named(column):
    row = {**make_rows(rows=1)[0], column: None}
    with pytest.raises(ValueError, match=column):
        CRMEnvInProcess.dataset_preprocess(row)


async def test_rows_that_do_not_fit_are_told_what_to_do():
    with pytest.raises(EnvDefinitionError, match="--env-arg level=steps"):
        await CRMEnvInProcess().init_rollout("r", company=0, level="steps")
    await CRMEnvInProcess(level="reports").init_rollout("r", company=0, level="steps")
    for arguments in ({"level": "easy"}, {"org": "sales"}):
        with pytest.raises(EnvDefinitionError, match=r"lookup|embedded"):
            CRMEnvInProcess(**arguments)


async def test_only_tools_of_the_level_are_served():
    env = CRMEnvInProcess()
    await env.init_rollout("r", company=0, level="lookup")
    assert [tool.name for tool in await env.list_tools()] == ["search_knowledge_articles"]
    refused = await env.run_tool("r", "issue_soql_query", query="SELECT Id FROM Case")
    assert refused.startswith("Error: There is no tool")
    await env.shutdown()


@pytest.mark.parametrize("level", LEVELS)
async def test_the_doctor_finds_nothing_to_say(level):
    diagnosis = await examine(CRMEnvInProcess, rows=make_rows(level, rows=60), env_args={"level": level})
    assert [str(each) for each in (*diagnosis.errors, *diagnosis.warnings)] == []
