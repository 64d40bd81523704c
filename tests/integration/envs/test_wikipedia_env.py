"""The environment wikipedia: solved by its demonstrations, not by guessing, and on any index."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmax.doctor import examine
from benchmax.envs.catalogue import environments
from benchmax.envs.remote import open_remote_env
from benchmax.envs.remote.process_limits import Confinement
from benchmax.envs.types import Example, Transcript
from benchmax.envs.wikipedia.articles.base import GET, SEARCH, TOOLS
from benchmax.envs.wikipedia.factbook.corpus import INDEX, factbook_dir, open_world
from benchmax.envs.wikipedia.tasks import KINDS, LEVELS, make_rows
from benchmax.envs.wikipedia.wiki_env import WikipediaEnv
from benchmax.errors import EnvDefinitionError, NotFoundError, UsageError
from benchmax.models.scripted import ScriptedModel
from benchmax.sandbox import capabilities
from benchmax.search import build_index
from ready_world import play_all, random_caller

pytestmark = pytest.mark.skipif(
    not (factbook_dir() / INDEX).is_file(), reason="the World Factbook is not here: benchmax wikipedia fetch"
)
SOAK = pytest.param(200, marks=pytest.mark.slow)


def examples(level: str, rows: int, seed: int = 0) -> list[Example]:
    return [WikipediaEnv.dataset_preprocess(row) for row in make_rows(level, rows=rows, seed=seed)]


@pytest.mark.parametrize("rows", [40, SOAK])
@pytest.mark.parametrize("level", LEVELS)
async def test_demonstrations_score_everything_at_once(level: str, rows: int) -> None:
    rollouts = await play_all(WikipediaEnv(), examples(level, rows, 7))
    assert [rollout.rewards for rollout in rollouts] == [{"text_match": 1.0}] * rows
    assert {len(rollout.tool_events) for rollout in rollouts} <= set(range(1, LEVELS[level].calls + 1))


async def test_all_kinds_and_tools_are_demonstrated() -> None:
    chosen = [each for level in LEVELS for each in examples(level, 20)]
    assert {(each["task"] or {})["kind"] for each in chosen} == set(KINDS)
    rollouts = await play_all(WikipediaEnv(), chosen)
    assert {event.name for rollout in rollouts for event in rollout.tool_events} == {GET, SEARCH}


async def test_a_hundred_rollouts_at_once() -> None:
    rollouts = await play_all(WikipediaEnv(), examples("facts", 100))
    assert {rollout.reward for rollout in rollouts} == {1.0}


# Those who do not solve them


@pytest.mark.parametrize("level", LEVELS)
async def test_a_random_caller_earns_next_to_nothing(level: str) -> None:
    rollouts = await play_all(WikipediaEnv(), examples(level, 80), lambda each: random_caller(TOOLS, each))
    assert sum(rollout.reward for rollout in rollouts) / 80 < 0.1
    assert {len(rollout.tool_events) for rollout in rollouts} == {3}


def frequent(level: str) -> str:
    return Counter(row["Answer"] for row in make_rows(level, rows=80)).most_common(1)[0][0]


CHEATS = {
    "nothing": lambda example, level: "",
    "empty tags": lambda example, level: "<answer></answer>",
    "echo": lambda example, level: f"<answer>{example['prompt_messages'][-1]['content']}</answer>",
    "prompt": lambda example, level: "\n".join(str(each["content"]) for each in example["prompt_messages"]),
    "shown answer": lambda example, level: "<answer>73</answer>",
    "most frequent": lambda example, level: f"<answer>{frequent(level)}</answer>",
    "numbers": lambda example, level: f"<answer>{' '.join(map(str, range(200)))}</answer>",
    "many answers": lambda example, level: "".join(f"<answer>{number}</answer>" for number in range(200)),
    "truth among others": lambda example, level: f"<answer>{example['task']['ground_truth'][0]} or 7</answer>",
    "truth then more": lambda example, level: (
        f"<answer>{example['task']['ground_truth'][0]}</answer><answer>x</answer>"
    ),
    "unclosed": lambda example, level: f"<answer>{example['task']['ground_truth'][0]}",
}


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize("level", LEVELS)
async def test_cheats_do_not_pay(level: str, name: str) -> None:
    rollouts = await play_all(
        WikipediaEnv(), examples(level, 80), lambda each: ScriptedModel(CHEATS[name](each, level))
    )
    assert sum(rollout.reward for rollout in rollouts) / 80 < 0.1


async def test_pasting_what_a_search_shows_does_not_pay() -> None:
    def paster(example: Example) -> ScriptedModel:
        def turn(messages: list[Any]) -> Any:
            if messages[-1]["role"] == "tool":
                return f"<answer>{messages[-1]['content']}</answer>"
            given = {"q": example["prompt_messages"][-1]["content"], "limit": 1}
            call = {"name": SEARCH, "arguments": json.dumps(given)}
            return {"role": "assistant", "content": "", "tool_calls": [call]}

        return ScriptedModel(turn)

    rollouts = await play_all(WikipediaEnv(), examples("facts", 80), paster)
    assert sum(rollout.reward for rollout in rollouts) == 0


@pytest.mark.parametrize("level", LEVELS)
async def test_the_doctor_finds_nothing_to_say(level: str) -> None:
    diagnosis = await examine(WikipediaEnv, rows=make_rows(level, rows=60))
    assert [str(each) for each in (*diagnosis.errors, *diagnosis.warnings)] == []


# Rows


@pytest.mark.parametrize("level", ["facts", "chains"])
def test_rows_are_the_same_everywhere_and_all_different(level: str) -> None:
    rows = make_rows(level, rows=30, seed=3)
    made = f"make_rows({level!r}, rows=30, seed=3)"
    code = f"import json; from benchmax.envs.wikipedia.tasks import make_rows; print(json.dumps({made}))"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd="/")
    assert json.loads(elsewhere.stdout) == rows
    assert len({WikipediaEnv.dataset_preprocess(row)["id"] for row in rows}) == 30
    assert str(factbook_dir()) not in json.dumps(rows)


@pytest.mark.parametrize("level", LEVELS)
def test_questions_do_not_hold_their_answers(level: str) -> None:
    for row in make_rows(level, rows=80):
        assert row["Answer"].lower() not in row["Question"].lower().replace("?", "").replace(",", "").split()


def test_answers_are_facts_of_the_corpus() -> None:
    """By hand: three countries, against the profiles."""
    facts = open_world().countries
    assert facts["Chad"]["Transportation"]["Airports"] == "59 (2013)"
    assert facts["Germany"]["Government"]["Capital, name"].startswith("Berlin")
    assert len(facts) > 250


async def test_rows_in_their_published_columns_load_and_score() -> None:
    example = WikipediaEnv.dataset_preprocess({"Question": "Who?", "Answer": "The Eiffel Tower"})
    assert example["prompt_messages"] == [{"role": "user", "content": "Who?"}]
    assert WikipediaEnv.dataset_preprocess({"Question": "Who?", "Answer": "a", "kind": "fact"})["task"] == {
        "ground_truth": ["a"]
    }
    env = WikipediaEnv()
    assert env.demonstrate(example) is None
    [rollout] = await play_all(env, [example], lambda each: ScriptedModel("<answer>eiffel tower.</answer>"))
    assert rollout.rewards == {"text_match": 1.0}
    for row in ({"Question": "Who?"}, {"Answer": "a"}, {"Question": "", "Answer": "a"}):
        with pytest.raises(ValueError, match="is missing"):
            WikipediaEnv.dataset_preprocess(row)


@pytest.mark.parametrize(
    ("said", "worth"),
    [
        ("<answer>487,700</answer>", 1.0), ("<answer>487700 km</answer>", 1.0), ("<answer> 487,700 KM. </answer>", 1.0),
        ("<answer>487,701</answer>", 0.0), ("487,700", 0.0), ("<answer>about 487,700</answer>", 0.0),
        ("<answer>1</answer> no: <answer>487,700</answer>", 1.0), ("<answer>Caf&eacute;</answer>", 0.0),
    ],
)  # fmt: skip
async def test_what_an_answer_is_worth(said: str, worth: float) -> None:
    task = {"ground_truth": ["487,700", "487700", "487,700 km", "487700 km"]}
    whole = Transcript(
        [
            {"role": "assistant", "content": "<answer>an older one</answer>"},
            {"role": "assistant", "content": said},
            {"role": "tool", "content": "late"},
        ],
        1,
    )
    assert await WikipediaEnv().compute_reward("r", whole, task) == {"text_match": worth}
    assert await WikipediaEnv().compute_reward("r", said, task) == {"text_match": worth}  # type: ignore[arg-type]


# Tools


async def test_mistakes_are_texts_for_the_model() -> None:
    env = WikipediaEnv()
    assert (await env.run_tool("r", SEARCH, q="")).startswith("Error: q must be a text")
    with pytest.raises(NotFoundError, match="one of: factbook, live, platform:NAME"):
        WikipediaEnv("nosuch")
    for limit in ("two", 0, 51, True):
        said = await env.run_tool("r", SEARCH, q="Chad", limit=limit)
        assert said == "Error: limit must be a whole number from 1 to 50."
    assert (await env.run_tool("r", GET)).startswith("Error: title")
    assert (await env.run_tool("r", GET, title="Atlantis")).startswith("Error: There is no article")
    assert (await env.run_tool("r", "edit", title="Chad")).startswith("Error: There is no tool 'edit'")
    assert (await env.run_tool("r", SEARCH, q="zzzzqqq")).startswith("No results")
    assert len((await env.run_tool("r", SEARCH, q="Chad")).splitlines()) == 10
    assert (await env.run_tool("r", GET, title="republic of chad")) == await env.run_tool("r", GET, title="Chad")
    await env.shutdown()


async def test_any_index_and_folder_can_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "lamps.md").write_text("# Lamps\n\nThe warranty on lamps lasts 24 months.")
    build_index(notes, tmp_path / "notes.sqlite").close()
    for corpus in (str(tmp_path / "notes.sqlite"), str(notes), tmp_path / "notes.sqlite"):
        monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
        env = WikipediaEnv(corpus)
        assert "24 months" in await env.run_tool("r", SEARCH, q="warranty lamps")
        with pytest.raises(EnvDefinitionError, match="--data"):
            await env.init_rollout("r", corpus="factbook")
        await env.init_rollout("r")
        await env.shutdown()
    with pytest.raises(UsageError, match="There is no corpus"):
        WikipediaEnv("nowhere.sqlite")


def test_the_command_line_knows_it(tmp_path: Path) -> None:
    assert environments()["wikipedia"] == "benchmax.envs.wikipedia.wiki_env.WikipediaEnv"
    done = subprocess.run(
        [sys.executable, "-m", "benchmax", "eval", "wikipedia", "--model", "scripted:gold", "-n", "20", "--json"],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["report"]["reward"]["mean"] == 1.0


@pytest.mark.parametrize("confined", [False, True])
async def test_it_runs_in_a_process_of_its_own_and_in_a_sandbox(confined: bool) -> None:
    if confined and (await capabilities()).level != "boundary":
        pytest.skip("this machine cannot confine code")
    env = await open_remote_env(environments()["wikipedia"], sandbox=Confinement() if confined else None)
    try:
        assert "Airports: 59" in await env.run_tool("r", SEARCH, q="Chad airports", limit=1)
    finally:
        await env.shutdown()


async def test_a_thousand_searches_at_once_hold_nobody_up() -> None:
    env = WikipediaEnv()
    said = await asyncio.gather(*(env.run_tool(str(n), SEARCH, q="Chad airports", limit=1) for n in range(1000)))
    assert len(set(said)) == 1
    assert "Airports: 59" in said[0]
    await env.shutdown()
