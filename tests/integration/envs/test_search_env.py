"""The environment search: any corpus, citations, and nothing earned with a wrong answer."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmax import limits
from benchmax.doctor import examine
from benchmax.envs.search import SearchEnv, judging
from benchmax.envs.search.grading import cited, conciseness, correctness
from benchmax.envs.search.handbook import DEFAULT_LEVEL, LEVELS, handbook_index, make_rows
from benchmax.envs.types import Example, Unscored
from benchmax.errors import EnvDefinitionError, NotFoundError, UsageError
from benchmax.models.scripted import ScriptedModel
from benchmax.rewards.judge import Judge
from benchmax.search import build_index
from benchmax.search.types import Document, Hit
from benchmax.testing import FakeModelServer
from platform_world import LiveServer
from ready_world import play_all, random_caller

SOAK = pytest.param(200, marks=pytest.mark.slow)
PERFECT = dict.fromkeys(
    ["answer_correctness", "conciseness", "citation_recall", "citation_precision", "search_efficiency"], 1.0
)


def examples(level: str, rows: int, seed: int = 0) -> list[Example]:
    return [SearchEnv.dataset_preprocess(row) for row in make_rows(level, rows=rows, seed=seed)]


@pytest.mark.parametrize("rows", [40, SOAK])
@pytest.mark.parametrize("level", LEVELS)
async def test_demonstrations_score_everything_at_once(level: str, rows: int) -> None:
    rollouts = await play_all(SearchEnv(), examples(level, rows, 7))
    assert [rollout.rewards for rollout in rollouts] == [PERFECT] * rows
    assert all(rollout.reward == pytest.approx(1.0) for rollout in rollouts)


async def test_a_hundred_rollouts_at_once() -> None:
    rollouts = await play_all(SearchEnv(), examples("chains", 100))
    assert {rollout.rewards["answer_correctness"] for rollout in rollouts} == {1.0}


@pytest.mark.parametrize("level", LEVELS)
async def test_a_random_caller_earns_next_to_nothing(level: str) -> None:
    tools = await SearchEnv().list_tools()
    rollouts = await play_all(SearchEnv(), examples(level, 80), lambda each: random_caller(tools, each))
    assert sum(rollout.reward for rollout in rollouts) / 80 < 0.1


EVERYTHING = " ".join(each.content for each in handbook_index().documents())
SOURCES = " ".join(f"[Source: d{number}]" for number in range(1, 393))
CHEATS = {
    "nothing": lambda example: "",
    "empty tags": lambda example: "<answer></answer>",
    "echo": lambda example: f"<answer>{example['prompt_messages'][-1]['content']}</answer>",
    "shown answer": lambda example: "<answer>3907</answer> [Source: d999]",
    "every text": lambda example: f"<answer>{EVERYTHING}</answer> {SOURCES}",
    "every source": lambda example: f"<answer></answer> {SOURCES}",
    "the text itself": lambda example: f"<answer>{text_of(example)}</answer>",
    "truth among others": lambda example: f"<answer>{example['task']['ground_truth']} or 1234 or Ada Kern</answer>",
    "unclosed": lambda example: f"<answer>{example['task']['ground_truth']}",
    "truth then more": lambda example: f"<answer>{example['task']['ground_truth']}</answer><answer>x</answer>",
}


def text_of(example: Example) -> str:
    """The text that holds the answer."""
    found = handbook_index().get((example["task"] or {})["reference_chunks"][-1]["id"])
    assert found is not None
    return found.content


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize("level", LEVELS)
async def test_cheats_do_not_pay(level: str, name: str) -> None:
    rollouts = await play_all(SearchEnv(), examples(level, 40), lambda each: ScriptedModel(CHEATS[name](each)))
    assert sum(rollout.reward for rollout in rollouts) / 40 < 0.1


async def test_citing_everything_is_worth_little_more_than_citing_nothing() -> None:
    env, chosen = SearchEnv(), examples("lookup", 10)
    right = lambda example: f"<answer>{example['task']['ground_truth']}</answer>"  # noqa: E731
    bare = await play_all(env, chosen, lambda each: ScriptedModel(right(each)))
    all_cited = await play_all(env, chosen, lambda each: ScriptedModel(f"{right(each)} {SOURCES}"))
    assert {rollout.rewards["citation_recall"] for rollout in bare} == {0.0}
    assert all(rollout.rewards["citation_precision"] < 0.01 for rollout in all_cited)


@pytest.mark.parametrize("level", LEVELS)
async def test_the_doctor_finds_nothing_to_say(level: str) -> None:
    diagnosis = await examine(SearchEnv, rows=make_rows(level, rows=60))
    assert [str(each) for each in (*diagnosis.errors, *diagnosis.warnings)] == []


# Rows


@pytest.mark.parametrize("level", LEVELS)
def test_rows_are_the_same_everywhere_and_all_different(level: str) -> None:
    rows = make_rows(level, rows=60, seed=3)
    made = f"make_rows({level!r}, rows=60, seed=3)"
    code = f"import json; from benchmax.envs.search.handbook import make_rows; print(json.dumps({made}))"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd="/")
    assert json.loads(elsewhere.stdout) == rows
    assert len({SearchEnv.dataset_preprocess(row)["id"] for row in rows}) == 60
    for row in rows:
        assert row["answer"] not in row["question"]
        assert row["answer"] in row["reference_chunks"][-1]["content"]


def test_the_default_level_has_as_many_rows_as_it_says() -> None:
    rows, folder = SearchEnv.load_dataset()
    assert (len(rows), folder, rows[0]["level"]) == (640, None, DEFAULT_LEVEL)


def test_rows_without_a_column_are_named() -> None:
    with pytest.raises(ValueError, match="answer is missing"):
        SearchEnv.dataset_preprocess({"question": "q"})


# Grading


@pytest.mark.parametrize(
    ("answer", "truth", "grade"),
    [
        ("4821", "4821", 1.0), ("It is 4821.", "4821", 1.0), ("4,821", "4821", 1.0), ("4822", "4821", 0.0),
        ("4821 or 4822", "4821", 0.0), ("Ada Kern", "ada kern", 1.0), ("Kern", "Ada Kern", 0.5),
        ("Ada Kern, Finn Holm", "Ada Kern", 0.5), ("Ada Kern, Finn Holm, Olga Prahl", "Ada Kern", 0.0),
        ("the warranty lasts 36 months", "the warranty lasts 24 months", 0.0), ("24 months", "24", 0.5),
        ("the warranty lasts 24 months", "warranty lasts 24 months", 1.0), ("", "x", 0.0), ("x " * 5000, "x", 0.0),
        ("12 June 1990", ["June 12, 1990", "12 June 1990"], 1.0), ("no", "", 0.0), ("B-417", "B-417", 1.0),
    ],
)  # fmt: skip
def test_grades_by_words_alone(answer: str, truth: Any, grade: float) -> None:
    assert correctness(answer, truth) == grade


def test_long_answers_are_graded_in_time() -> None:
    for text in ("1," * 2_000, "a'" * 2_000, "-" * 4_000, "0" * 4_000):
        assert correctness(text, "4821") == 0.0


def test_conciseness_falls_with_length() -> None:
    lengths = [conciseness("4821", "x" * length, "4821") for length in (10, 1_000, 2_000, 6_000)]
    assert lengths == sorted(lengths, reverse=True)
    assert (lengths[0], lengths[-1]) == (1.0, 0.0)
    assert conciseness("word " * 100, "", "4821") < 0.1


@pytest.mark.parametrize(
    ("text", "precision", "recall"),
    [
        ("[Source: a]", 1.0, 0.5), ("[source: A ] [Source: b]", 1.0, 1.0), ("[Source: a, b]", 1.0, 1.0),
        ("[Source: a] [Source: x]", 0.5, 0.5), ("[Source: guide.md]", 1.0, 0.5), ("a b", 0.0, 0.0),
        ("[Source: ]", 0.0, 0.0),
    ],
)  # fmt: skip
def test_citations_name_texts_by_id_or_metadata(text: str, precision: float, recall: float) -> None:
    chunks = [{"id": "a"}, {"id": "b", "metadata": {"file": "guide.md"}}]
    assert cited(text, chunks) == (precision, recall)


# Judges


async def test_a_judge_grades_what_words_cannot() -> None:
    task = {"question": "Why?", "ground_truth": "because of the rain", "reference_chunks": [{"id": "a"}]}
    said: Any = [{"role": "assistant", "content": "<answer>it was wet</answer> [Source: a]"}]
    async with FakeModelServer('{"reasoning": "Same.", "score": 0.5}') as server:
        env = SearchEnv(judge_base_url=server.base_url, judge_model="judge", judge_token_provider=lambda: "key")
        scores = await env.compute_reward("r", said, task)
        await env.shutdown()
    assert scores == {
        "answer_correctness": 0.5, "conciseness": 0.5, "citation_recall": 0.5, "citation_precision": 0.5,
        "search_efficiency": 0.0,
    }  # fmt: skip
    assert (await SearchEnv().compute_reward("r", said, task))["answer_correctness"] == 0.0


async def test_answers_that_come_at_once_share_one_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Judge] = []

    class Counted(Judge):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(judging, "Judge", Counted)
    async with FakeModelServer('{"reasoning": "Same.", "score": 1.0}') as server:
        judge = judging.AnswerJudge(server.base_url, "judge", lambda: "key", 30.0)
        scores = await asyncio.gather(*(judge.grade("Why?", f"rain {n}", "the rain") for n in range(4)))
        await judge.close()
    assert scores == [1.0] * 4
    assert len(made) == 1


async def test_a_judge_that_fails_leaves_the_rollout_unscored() -> None:
    task = {"question": "Why?", "ground_truth": "x", "reference_chunks": []}
    async with FakeModelServer("no JSON at all") as server:
        env = SearchEnv(judge_base_url=server.base_url, judge_model="judge")
        scores = await env.compute_reward("r", "<answer>y</answer>", task)  # type: ignore[arg-type]
        empty = await env.compute_reward("r", "nothing", task)  # type: ignore[arg-type]
        await env.shutdown()
    assert all(isinstance(score, Unscored) for score in scores.values())
    assert set(empty.values()) == {0.0}, "no answer needs no judge"
    with pytest.raises(UsageError, match="both"):
        SearchEnv(judge_model="judge")


# Corpora


class Words:
    """A corpus as somebody writes one."""

    def search(self, query: str, limit: int = 10, mode: str = "lexical") -> Sequence[Any]:
        return [{"id": "w1", "content": f"{mode}: {query}"}, Hit(Document("w2", "t", "two"), 1.0), "plain"][:limit]

    def available_modes(self) -> list[str]:
        return ["lexical", "vector"]


class AsyncWords:
    async def search(self, query: str, limit: int = 10) -> Sequence[Any]:
        await asyncio.sleep(0)
        return [{"id": "w1", "content": "x" * 9_000}] * limit


async def test_any_object_that_searches_is_a_corpus() -> None:
    env = SearchEnv(Words())
    assert (
        await env.run_tool("r", "search", query="q") == "[Source: w1] lexical: q\n[Source: w2] two\n[Source: ?] plain"
    )
    assert await env.run_tool("r", "search", query="q", limit=1, mode="vector") == "[Source: w1] vector: q"
    [tool] = await env.list_tools()
    assert (tool.input_schema or {})["properties"]["mode"] == {"enum": ["lexical", "vector"]}
    long = await SearchEnv(AsyncWords()).run_tool("r", "search", query="q", limit=3)
    assert long.endswith("[cut: search for less, or with a smaller limit]")
    assert len(long) < limits.SEARCH_OUTPUT_CHARS + 100
    with pytest.raises(EnvDefinitionError, match="no method search"):
        SearchEnv(3)


def test_a_row_without_an_accepted_answer_has_no_solution() -> None:
    assert SearchEnv.gold_completion(SearchEnv.dataset_preprocess({"question": "Who?", "answer": []})) is None


async def test_files_and_folders_are_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "lamps.md").write_text("The warranty on lamps lasts 24 months.")
    build_index(notes, tmp_path / "notes.sqlite").close()
    row = {"question": "How long?", "answer": "24 months", "reference_chunks": [{"id": "lamps.md"}]}
    example = SearchEnv.dataset_preprocess(row)
    call = {"name": "search", "arguments": '{"query": "lamps warranty"}'}
    for address in (str(notes), str(tmp_path / "notes.sqlite"), notes):
        turns: list[Any] = [
            {"role": "assistant", "tool_calls": [call]}, "<answer>24 months</answer> [Source: lamps.md]"
        ]  # fmt: skip
        [rollout] = await play_all(SearchEnv(address), [example], lambda each, turns=turns: ScriptedModel(turns))
        assert rollout.rewards == PERFECT
        assert "[Source: lamps.md] The warranty" in str(rollout.messages)
        with pytest.raises(EnvDefinitionError, match="handbook"):
            await SearchEnv(address).init_rollout("r", corpus="handbook")
    (notes / "lamps.md").write_text("Lamps have no warranty.")
    assert "no warranty" in await SearchEnv(str(notes)).run_tool("r", "search", query="lamps")
    with pytest.raises(NotFoundError, match="one of: handbook, platform:NAME"):
        SearchEnv("elsewhere:1")


async def test_corpora_of_the_platform_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveServer(tmp_path) as server:
        _, key = server.user()
        monkeypatch.setenv("BENCHMAX_PLATFORM_URL", server.url)
        monkeypatch.setenv("BENCHMAX_API_KEY", key)
        with server.client(key) as http:
            corpus = http.post("/v1/corpora", json={"name": "notes"}).json()
            chunks = [{"id": "c1", "content": "Lamps glow.", "metadata": {"file": "lamps.md"}}]
            http.post(f"/v1/corpora/{corpus['id']}/chunks", json={"chunks": chunks})
        env = pickle.loads(pickle.dumps(SearchEnv("platform:notes")))
        assert await env.run_tool("r", "search", query="lamps") == "[Source: c1] Lamps glow."
        assert key not in pickle.dumps(env).decode("latin-1")
        other = SearchEnv("platform:other")
        assert "has no corpus 'other' of yours. There are: notes" in await other.run_tool("r", "search", query="x")
        monkeypatch.setenv("BENCHMAX_API_KEY", "wrong")
        refused = SearchEnv("platform:notes")
        assert "does not accept the key" in await refused.run_tool("r", "search", query="x")
        for each in (env, other, refused):
            await each.shutdown()


# Tools and weights


async def test_mistakes_are_texts_and_searches_are_counted_for_each_rollout() -> None:
    env = SearchEnv(max_search_calls=2)
    assert (await env.run_tool("a", "search", query="  ")).startswith("Error: query")
    for limit in (True, 0, 51, "3"):
        said = await env.run_tool("a", "search", query="x", limit=limit)
        assert said == "Error: limit must be a whole number from 1 to 50."
    assert (await env.run_tool("a", "find", query="x")).startswith("Error: There is no tool")
    assert (await env.run_tool("a", "search", query="x", mode="vector")).startswith("Error: The index")
    assert (await env.run_tool("a", "search", query="zzzqqq")).startswith("No results")
    assert (await env.run_tool("a", "search", query="Ada")).startswith("Error: 2 searches are all")
    assert "[Source: d" in await env.run_tool("b", "search", query="Ada")
    await env.release_rollout("a")
    assert "[Source: d" in await env.run_tool("a", "search", query="Ada")


def test_weights_are_shares() -> None:
    others = dict.fromkeys(["w_citation_recall", "w_citation_precision", "w_search_efficiency"], 0.0)
    env = SearchEnv(w_correctness=3.0, w_conciseness=1.0, **others)
    assert env.reward_weights["answer_correctness"] == 0.75
    with pytest.raises(EnvDefinitionError, match="w_"):
        SearchEnv(w_conciseness=-1.0)


def test_the_prompt_tells_about_the_corpus() -> None:
    assert "Search the manuals of lamps. Answer in <answer>" in SearchEnv.render_system_prompt("the manuals of lamps.")
