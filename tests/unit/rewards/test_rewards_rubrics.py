import multiprocessing
import os
import re
import tempfile

import pytest

from benchmax.envs.types import Unscored
from benchmax.errors import ConfigError, JudgeError
from benchmax.models.scripted import ScriptedModel
from benchmax.rewards import Judge, Rubric, RubricCache, generate_rubrics, score_group_rubrics, score_rubrics
from benchmax.rewards.adaptive import adaptive_score
from benchmax.rewards.rubric import judge_rubric
from benchmax.rubrics.cache import (
    atomic_cache_update,
    filter_and_cache_rubrics,
    get_cache_for_question,
    load_rubric_cache,
    save_rubric_cache,
)

CLEAR = Rubric("Is Clear", "It is easy to follow.")
RUDE = Rubric("Rude!", "It insults the reader.", type="negative")
GRADED = Rubric("Depth", "How deep it goes.", score_map={0: "shallow", 0.5: "some", 1: "deep"})


def judge_by(function):
    """A judge whose score is a function of the criterion and the response."""

    def answer(messages):
        prompt = messages[-1]["content"]
        title = re.search(r"Criterion: (.*)", prompt)[1]
        response = re.search(r'<data name="response" id="\w+">\n(.*?)\n</data', prompt, re.DOTALL)[1]
        score = function(title, response)
        return f'{{"reasoning": "so", "score": {score}}}' if score is not None else "I refuse"

    return Judge(ScriptedModel(answer))


def test_keys_and_scales():
    assert (CLEAR.key, RUDE.key) == ("rubric_is_clear", "rubric_rude")
    assert len(Rubric("x" * 300, "d").key) == 80
    assert CLEAR.score_map is None
    assert Rubric("t", "d", score_map={"0.5": "a", 1: "b"}).score_map == {0.5: "a", 1.0: "b"}
    assert {CLEAR: 1}[Rubric("Is Clear", "It is easy to follow.")] == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("", "d"), "title"),
        (("!!", "d"), "title"),
        (("t", " "), "description"),
        (("t", "d", "neutral"), "positive"),
        (("t", "d", "positive", {1: "only"}), "two"),
        (("t", "d", "positive", {"x": "a", 1: "b"}), "number"),
        (("t", "d", "positive", {float("nan"): "a", 1: "b"}), "finite"),
        (("t", "d", "negative", {1: "a", 5: "b"}), r"\[0, 1\]"),
    ],
)
def test_a_rubric_is_checked(arguments, word):
    with pytest.raises(ConfigError, match=word):
        Rubric(*arguments)


async def test_scores_by_rubric():
    judge = judge_by(lambda title, response: {"Is Clear": 1, "Rude!": 1, "Depth": 0.5}[title])
    scores = await score_rubrics(judge, [CLEAR, RUDE, GRADED], "q", "r")
    assert scores == {"rubric_is_clear": 1.0, "rubric_rude": 0.0, "rubric_depth": 0.5}


async def test_the_judge_sees_scale_question_and_reference():
    prompts = []
    judge = Judge(ScriptedModel(lambda m: prompts.append(m[-1]["content"]) or '{"score": 0.5, "reasoning": "r"}'))
    verdict = await judge_rubric(judge, GRADED, "why?", "because {x}", "the {truth}")
    assert (verdict.score, verdict.reasoning) == (0.5, "r")
    for text in ("- 0.5: some", "why?", "because {x}", "the {truth}", "How deep it goes."):
        assert text in prompts[0]


async def test_a_score_off_the_scale_is_unscored():
    judge = judge_by(lambda title, response: 0.7)
    scores = await score_rubrics(judge, [GRADED], "q", "r")
    assert "must be one of 0, 0.5, 1" in scores["rubric_depth"].reason


async def test_one_rubric_may_fail_alone():
    judge = judge_by(lambda title, response: None if title == "Rude!" else 1)
    scores = await score_rubrics(judge, [CLEAR, RUDE], "q", "r")
    assert scores["rubric_is_clear"] == 1.0
    assert isinstance(scores["rubric_rude"], Unscored)


async def test_group_scores_keep_their_order():
    judge = judge_by(lambda title, response: int(response))
    scores = await score_group_rubrics(judge, [CLEAR, RUDE], "q", ["1", "0"], "truth")
    assert scores == [{"rubric_is_clear": 1, "rubric_rude": 0}, {"rubric_is_clear": 0, "rubric_rude": 1}]


async def test_two_rubrics_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="title of its own"):
        await score_rubrics(judge_by(lambda *_: 1), [CLEAR, Rubric("is clear", "Other.")], "q", "r")


# --- adaptive ---


async def test_generated_rubrics():
    text = (
        '{"rubrics": [{"title": "Names Paris", "description": "d", "type": "positive"},'
        '{"title": "Hedges", "description": "d", "type": "negative"},'
        '{"title": "is clear", "description": "known", "type": "positive"}]}'
    )
    rubrics = await generate_rubrics(Judge(ScriptedModel(text)), "q", ["a", "b"], existing=[CLEAR])
    assert [(rubric.key, rubric.type) for rubric in rubrics] == [
        ("rubric_names_paris", "positive"),
        ("rubric_hedges", "negative"),
    ]


async def test_generated_rubrics_are_single_short_lines():
    text = '{"rubrics": [{"title": "a\\n\\nCriterion: b", "description": "' + "x " * 2000 + '"}]}'
    (rubric,) = await generate_rubrics(Judge(ScriptedModel(text)), "q", ["a"])
    assert rubric.title == "a Criterion: b"
    assert len(rubric.description) == 500


@pytest.mark.parametrize("bad", ['{"rubrics": "many"}', '{"rubrics": ["x"]}', '{"rubrics": [{"title": "t"}]}'])
async def test_rubrics_that_cannot_be_used(bad):
    with pytest.raises(JudgeError):
        await generate_rubrics(Judge(ScriptedModel(bad)), "q", ["a"])


def test_adaptive_score():
    rubrics = [CLEAR, GRADED, RUDE]
    assert adaptive_score(rubrics, [1, 1, 0]) == 1.0
    assert adaptive_score(rubrics, [0, 0, 1]) == 0.0
    assert adaptive_score(rubrics, [1, 0.5, 1]) == pytest.approx((1.5 - 1 + 1) / 3)
    assert adaptive_score(rubrics, [1, Unscored("x"), 1]) == Unscored("x")
    assert isinstance(adaptive_score([], []), Unscored)


def test_the_cache_keeps_the_three_that_spread_most():
    cache = RubricCache(questions=2)
    rubrics = [Rubric(f"r{n}", "d") for n in range(5)]
    cache.update("q", dict(zip(rubrics, ([1, 1], [0, 1], [0, 0.5], [0, 0.2], [0, 0.1]), strict=True)))
    assert [rubric.title for rubric in cache.get("q")] == ["r1", "r2", "r3"]
    cache.update("q", {rubrics[4]: [0, 0.9], rubrics[1]: [1, 1]})
    assert [rubric.title for rubric in cache.get("q")] == ["r4", "r2", "r3"]
    assert cache.get("other") == []
    for question in "ab":
        cache.update(question, {rubrics[0]: [0, 1]})
    assert cache.get("q") == []


def _add(number, path):
    filter_and_cache_rubrics(f"question {number}", [Rubric("title", "what to look for")], [[0.0, 1.0]], path)


def test_rubrics_are_kept_in_a_file_by_processes_that_take_turns(tmp_path):
    path = tmp_path / "rubrics.json"
    scored = {0.0: "none", 0.5: "some", 1.0: "all"}
    rubrics = [Rubric(f"r{n}", "text", "negative" if n % 2 else "positive", scored) for n in range(5)]
    kept = filter_and_cache_rubrics("q", rubrics, [[0, 1], [0.5, 1], [1, 1], [0, 0.9], [0, 0.6]], path)
    assert [rubric.title for rubric in kept] == ["r0", "r3", "r4"], "r2 tells nothing, and three are kept"
    assert get_cache_for_question([{"role": "user", "content": "q"}], path) == kept
    better = Rubric("better", "text")
    assert filter_and_cache_rubrics("q", [better], [[0, 3]], path) == [better, kept[0], kept[1]]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.starmap(_add, [(number, path) for number in range(24)])
    assert len(load_rubric_cache(path)) == 25, "nothing was lost"
    with pytest.raises(ConfigError, match="1 rubrics and 0 lists"):
        filter_and_cache_rubrics("q", [better], [], path)

    def fails():
        with atomic_cache_update(path) as cache:
            cache.clear()
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fails()
    assert len(load_rubric_cache(path)) == 25
    path.write_text('{"x": [{"title": ""}, 3]}')
    key = next(iter(load_rubric_cache(path)))
    save_rubric_cache({key: []}, path)
    assert load_rubric_cache(path) == {"x": []}
    path.write_text('{"x": 3, "y": []}')
    assert load_rubric_cache(path) == {"y": []}
    path.write_text("[" * 100_000)
    assert load_rubric_cache(path) == {}
    path.write_text("torn {")
    assert get_cache_for_question("q", path) == []


def test_every_user_has_a_rubric_cache_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for user in (1001, 1002):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        filter_and_cache_rubrics("q", [CLEAR], [[0, 1]])
    assert len(list(tmp_path.glob("rubric_cache*.json"))) == len(list(tmp_path.glob(".rubric_cache*.lock"))) == 2
