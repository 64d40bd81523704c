"""Statistics, reports and comparisons, against numbers worked out by hand."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean

import pytest

from benchmax.evaluation import compare, summarise
from benchmax.evaluation.statistics import estimate, estimate_share, max_at_k, pass_at_k, quantile
from benchmax.models.base import Usage
from benchmax.rollouts.record import Failure, Rollout, Termination, ToolEvent


def rollout(example="a", sample=0, reward=1.0, **fields) -> Rollout:
    rewards = fields.pop("rewards", {} if reward is None else {"x": reward})
    fields.setdefault("termination", Termination.FINISHED)
    return Rollout(id=f"{example}{sample}", example_id=example, sample=sample, reward=reward, rewards=rewards, **fields)


def test_an_interval_is_students():
    got = estimate([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    assert got is not None
    assert got.mean == pytest.approx(2 / 3)
    assert got.high - got.mean == pytest.approx(2.5706 * 0.5164 / 6**0.5, rel=2e-3)
    assert estimate([]) is None
    assert estimate([1.0]).low == float("-inf")


def test_a_share_of_one_is_not_certain():
    got = estimate_share([1.0] * 10)
    assert got.mean == 1.0
    assert got.low == pytest.approx(0.7225, abs=1e-3)
    assert got.high == 1.0


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_at_k_agrees_with_counting_every_draw(k):
    values = [0.0, 0.2, 0.2, 1.0, 0.7]
    draws = list(combinations(values, k))
    assert max_at_k(values, k) == pytest.approx(fmean(max(draw) for draw in draws))
    assert pass_at_k(4, 5, k) == pytest.approx(fmean(any(v > 0 for v in draw) for draw in draws))


def test_quantile():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.5) == 0.0


def test_unscored_samples_are_counted_and_leave_the_means():
    report = summarise(
        [
            rollout("a", 0, 1.0),
            rollout("a", 1, None, unscored={"x": "judge away"}, termination=Termination.FINISHED),
            rollout("b", 0, 0.0),
            rollout("b", 1, 0.5),
            rollout("c", 0, None, termination=Termination.MODEL_ERROR, error=Failure("ModelTimeout", "late")),
        ]
    )
    assert (report.examples, report.rollouts, report.scored) == (3, 5, 3)
    assert report.reward.mean == pytest.approx((1.0 + 0.25) / 2)
    assert report.reward.n == 2
    assert report.unscored == {"x": 1}
    assert report.errors == {"ModelTimeout": 1}
    assert report.terminations == {"finished": 4, "model_error": 1}
    assert sorted(report.pass_at) == [1]


def test_the_primary_component_decides_what_is_solved():
    rollouts = [
        rollout("a", s, 0.2 + 0.8 * (s == 0), rewards={"format": 1.0, "correct": float(s == 0)}) for s in range(4)
    ]
    report = summarise(rollouts, primary="correct")
    assert report.solve_rate.mean == 0.25
    assert report.pass_at[1].mean == 0.25
    assert report.pass_at[4].mean == 1.0
    assert report.pass_at[2].mean == pytest.approx(0.5)
    assert report.max_at[4].mean == 1.0
    assert report.components["format"].mean == 1.0


def test_lengths_tools_tokens_and_cost_add_up():
    events = [ToolEvent(1, "t", True, 0.1), ToolEvent(1, "t", False, 0.1)]
    report = summarise(
        [
            rollout("a", 0, usage=Usage(10, 4, 0.5), turns=2, tool_events=events, seconds={"total": 1.0}),
            rollout("a", 1, usage=Usage(10, 8, 0.5), turns=1, seconds={"total": 3.0}),
        ]
    )
    assert report.completion_tokens == 6
    assert report.prompt_tokens_total == 20
    assert report.cost_usd == 1.0
    assert report.turns == 1.5
    assert (report.tool_calls, report.tool_errors) == (1.0, 1)
    assert report.seconds_p95 == 3.0


def test_an_empty_report_is_plain_json():
    import json

    json.dumps(summarise([]).to_dict(), allow_nan=False)
    json.dumps(summarise([rollout()]).to_dict(), allow_nan=False)


def test_comparison_pairs_by_example_and_sorts_by_regression():
    base = [rollout(e, s, 0.5) for e in "abcd" for s in range(2)]
    other = [rollout(e, 0, v) for e, v in zip("bcde", (0.9, 0.1, 0.5, 1.0), strict=True)]
    got = compare(base, other)
    assert [(p.example_id, round(p.delta, 3)) for p in got.pairs] == [("c", -0.4), ("d", 0.0), ("b", 0.4)]
    assert (got.only_in_base, got.only_in_other) == (1, 1)
    assert got.reward.mean == pytest.approx(0.0)
    assert got.verdict == "no clear difference"
    assert got.components["x"].mean == pytest.approx(0.0)


def test_comparison_verdicts():
    many = "abcdefghijkl"
    base = [rollout(e, 0, 0.2) for e in many]
    better = [rollout(e, 0, 0.9 if i % 4 else 0.3) for i, e in enumerate(many)]
    assert compare(base, better).verdict == "better"
    assert compare(better, base).verdict == "worse"
    assert "nothing to compare" in compare(base, [rollout("z")]).verdict
