"""Rankings, tournaments and diversity."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.envs.types import Unscored
from benchmax.errors import ConfigError, JudgeError
from benchmax.models.scripted import ScriptedModel
from benchmax.rewards import (
    DiversityConfig,
    Judge,
    RankingAnchor,
    Rubric,
    cluster_texts,
    rank_group_rubrics,
    scale_by_diversity,
    tournament,
)
from benchmax.rewards.ranking import anchored_scores, band_anchors, tier_midpoints
from benchmax.rewards.tournament import pairings

QUALITY = Rubric("Quality", "How good it is.")


def fenced(prompt):
    """The labelled texts of a judge's prompt."""
    return dict(re.findall(r'<data name="([^"]*)" id="\w+">\n(.*?)\n</data id', prompt, re.DOTALL))


def ranking_judge(worth=float):
    """Ranks responses by a number in them."""
    prompts = []

    def answer(messages):
        prompts.append(messages[-1]["content"])
        shown = {label: worth(text) for label, text in fenced(prompts[-1]).items() if label != "question"}
        tiers = [[label for label in shown if shown[label] == level] for level in sorted(set(shown.values()))[::-1]]
        return f'{{"tiers": {tiers}}}'.replace("'", '"')

    judge = Judge(ScriptedModel(answer))
    judge.prompts = prompts
    return judge


# --- ranking maths ---


def test_tier_midpoints():
    assert tier_midpoints([["a"]]) == {"a": 0.5}
    assert tier_midpoints([["a"], ["b", "c"]]) == {"a": 0.75, "b": 0.25, "c": 0.25}
    assert tier_midpoints([["a"], ["b"], ["c"], ["d"]]) == {"a": 0.875, "b": 0.625, "c": 0.375, "d": 0.125}


def test_ground_truth_golden_numbers():
    tiers = [["a"], ["b"], ["gt", "c"], ["d"], ["e"], ["f"]]
    scores = anchored_scores(tiers, {"gt": 0.5}, 0.3)
    expected = {"a": 1.0, "b": 0.75, "c": 0.5, "gt": 0.5, "d": 0.2, "e": 0.1, "f": 0.0}
    assert scores == pytest.approx(expected)
    assert anchored_scores([["gt"], ["a"]], {"gt": 0.5}, 0.3) == pytest.approx({"gt": 0.5, "a": 0.0})
    assert anchored_scores([["a"], ["gt"]], {"gt": 0.5}, 0.3) == pytest.approx({"gt": 0.5, "a": 1.0})


def test_several_anchors_golden_numbers():
    tiers = [["a"], ["good"], ["b"], ["c"], ["fair"], ["d"], ["e"]]
    scores = anchored_scores(tiers, {"good": 0.9, "fair": 0.3})
    expected = {"a": 1.0, "good": 0.9, "b": 0.7, "c": 0.5, "fair": 0.3, "d": 0.15, "e": 0.0}
    assert scores == pytest.approx(expected)


def test_anchors_the_judge_put_in_the_wrong_order_stay_monotone():
    scores = anchored_scores([["fair"], ["a"], ["good"]], {"good": 0.9, "fair": 0.3})
    assert scores == pytest.approx({"fair": 0.9, "a": 0.6, "good": 0.3})
    assert anchored_scores([["good", "fair", "a"]], {"good": 0.9, "fair": 0.3})["a"] == pytest.approx(0.6)


@given(st.lists(st.sampled_from("rrrx"), min_size=1, max_size=12), st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_a_better_tier_never_scores_less(kinds, edges):
    tiers = [[f"{kind}{place}"] for place, kind in enumerate(kinds)]
    anchors = {name: edges[place] for place, (name,) in enumerate(tiers) if name[0] == "x"}
    scores = anchored_scores(tiers, anchors)
    values = [scores[name] for (name,) in tiers]
    assert all(upper >= lower - 1e-9 for upper, lower in pairwise(values))
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in values)


def test_band_anchors():
    assert band_anchors(["x", "y"]) == [
        RankingAnchor("x", pytest.approx(2 / 3), "reference 1"),
        RankingAnchor("y", pytest.approx(1 / 3), "reference 2"),
    ]
    assert band_anchors(["x"], [0.4], ["human"]) == [RankingAnchor("x", 0.4, "human")]
    for edges in ([0.1, 0.9], [0.5], [2.0, 1.0]):
        with pytest.raises(ConfigError):
            band_anchors(["x", "y"], edges)


# --- ranking groups ---


async def test_rank_without_reference():
    scores = await rank_group_rubrics(ranking_judge(), [QUALITY], "q", ["1", "3", "3", "2"])
    assert [score["rubric_quality"] for score in scores] == pytest.approx([1 / 6, 5 / 6, 5 / 6, 0.5])


async def test_rank_with_anchors_shown_blind():
    judge = ranking_judge()
    anchors = [RankingAnchor("5", 0.8, "expert"), RankingAnchor("2", 0.2)]
    scores = await rank_group_rubrics(judge, [QUALITY], "q", ["9", "5", "3", "1"], anchors=anchors)
    assert [score["rubric_quality"] for score in scores] == pytest.approx([1.0, 0.8, 0.5, 0.0])
    assert "expert" not in judge.prompts[0]
    assert len(fenced(judge.prompts[0])) == 6, "question and five distinct texts: the tie with an anchor is shown once"


async def test_no_response_keeps_its_place():
    judge = ranking_judge()
    for question in range(20):
        await rank_group_rubrics(judge, [QUALITY], str(question), ["1", "2", "3"])
    shown_first = {fenced(prompt)["R1"] for prompt in judge.prompts}
    assert shown_first == {"1", "2", "3"}


async def test_rank_failure_leaves_all_unscored():
    scores = await rank_group_rubrics(Judge(ScriptedModel('{"tiers": [["R1"]]}')), [QUALITY], "q", ["1", "2"])
    assert all("exactly once" in score["rubric_quality"].reason for score in scores)


async def test_a_negative_rubric_ranks_the_least_affected_first():
    judge = ranking_judge()
    await rank_group_rubrics(judge, [Rubric("Rude", "d", "negative")], "q", ["1", "2"])
    assert "least affected" in judge.prompts[0]


# --- tournament ---


def match_judge(choose):
    def answer(messages):
        texts = fenced(messages[-1]["content"])
        return f'{{"winner": "{choose(texts["first response"], texts["second response"])}"}}'

    return Judge(ScriptedModel(answer))


def larger(first, second):
    return "tie" if first == second else "first" if float(first) > float(second) else "second"


async def test_win_rates():
    assert await tournament(match_judge(larger), "q", ["1", "3", "2"]) == [0.0, 1.0, 0.5]
    assert await tournament(match_judge(larger), "q", ["2", "2", "1"]) == [0.75, 0.75, 0.0]


@pytest.mark.parametrize("place", ["first", "second"])
async def test_a_judge_that_favours_a_place_decides_nothing(place):
    judge = match_judge(lambda first, second: place)
    assert await tournament(judge, "q", ["a", "b", "c"]) == [0.5, 0.5, 0.5]
    assert judge.usage.calls == 6


async def test_matches_are_bounded_and_even():
    judge = match_judge(larger)
    responses = [str(n) for n in range(40)]
    rates = await tournament(judge, "q", responses, max_matches=120)
    assert judge.usage.calls == 2 * 120
    assert rates[39] == 1.0
    assert rates[0] == 0.0
    met = [sum(n in pair for pair in pairings(40, 120)) for n in range(40)]
    assert met == [6] * 40
    assert all(len(set(map(frozenset, pairings(n, m)))) == len(pairings(n, m)) for n in range(9) for m in range(1, 40))


async def test_undecided_matches_do_not_count():
    def choose(first, second):
        return "?" if "9" in (first, second) else larger(first, second)

    low, high, mute = await tournament(match_judge(choose), "q", ["1", "2", "9"])
    assert (low, high) == (0.0, 1.0)
    assert isinstance(mute, Unscored)
    (alone,) = await tournament(match_judge(larger), "q", ["1"])
    assert "two responses" in alone.reason


# --- diversity ---


async def test_ngram_clusters():
    texts = [
        "the quick brown fox jumps over the dog",
        "something else entirely, nothing in common",
        "The quick brown fox jumps over the cat",
        "",
        "  ",
    ]
    assert await cluster_texts(texts) == [0, 1, 0, 2, 2]
    assert await cluster_texts(texts, DiversityConfig(similarity_threshold=1.0)) == [0, 1, 2, 3, 3]
    assert await cluster_texts(["yes", "yes", "no"]) == [0, 0, 1]
    assert (await cluster_texts(["yes", "yes", "no"])).sizes == {0: 2, 1: 1}
    assert await cluster_texts([]) == []


async def test_judge_clusters():
    judge = Judge(ScriptedModel('{"clusters": [["T2"], ["T1", "T3"]]}'))
    config = DiversityConfig(method="llm")
    assert await cluster_texts(["a", "b", "c", "a"], config, judge=judge) == [0, 1, 0, 0]


async def test_a_failing_judge_falls_back_or_raises(caplog):
    judge = Judge(ScriptedModel("no"))
    assert await cluster_texts(["a", "a", "b"], DiversityConfig("llm"), judge=judge) == [0, 0, 1]
    assert "judge failed" in caplog.text
    with pytest.raises(JudgeError):
        await cluster_texts(["a", "b"], DiversityConfig("llm", fallback_on_error=False), judge=judge)
    with pytest.raises(ConfigError, match="judge="):
        await cluster_texts(["a", "b"], DiversityConfig("llm"))


def test_scale_by_diversity():
    missing = Unscored("x")
    assert scale_by_diversity([1.0, 0.6, 0.4, missing], [0, 1, 1, 0]) == [0.5, 0.3, 0.2, missing]
    with pytest.raises(ConfigError):
        scale_by_diversity([1.0], [0, 1])


@pytest.mark.parametrize("bad", [{"method": "magic"}, {"ngram_n": 0}, {"similarity_threshold": 0}])
def test_diversity_config_is_checked(bad):
    with pytest.raises(ConfigError):
        DiversityConfig(**bad)
