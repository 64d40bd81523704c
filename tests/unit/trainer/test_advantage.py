"""Advantages, prompts and metrics."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.evaluation.report import summarise
from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Rollout
from benchmax.trainer.learning.advantage import AdvantageRule, advantages, assign_advantages
from benchmax.trainer.sampling.prompt_selection import PromptStream
from benchmax.trainer.sampling.step_metrics import rollout_metrics


def group(*rewards: float | None) -> list[Rollout]:
    tokens = [TokenSegment([1], False), TokenSegment([2], True)]
    return [
        Rollout(str(i), "e", i, reward=reward, ok=reward is not None, tokens=list(tokens))
        for i, reward in enumerate(rewards)
    ]


def test_std_and_mean():
    rewards = [0.0, 0.0, 1.0, 1.0]
    deviation = statistics.stdev(rewards)
    assert advantages(rewards) == pytest.approx([-0.5 / (deviation + 1e-4)] * 2 + [0.5 / (deviation + 1e-4)] * 2)
    assert advantages(rewards, AdvantageRule("mean")) == [-0.5, -0.5, 0.5, 0.5]


def test_leave_one_out_is_the_mean_of_the_others():
    rewards = [0.1, 0.7, 0.4]
    found = advantages(rewards, AdvantageRule("mean", leave_one_out=True))
    assert found == pytest.approx([0.1 - 0.55, 0.7 - 0.25, 0.4 - 0.4])


def test_unscored_samples_leave_the_baseline():
    rollouts = group(1.0, None, 0.0, 1.0)
    assert assign_advantages(rollouts, AdvantageRule("mean"))
    assert [rollout.discarded for rollout in rollouts] == [None, "unscored", None, None]
    assert [rollout.advantage for rollout in rollouts] == pytest.approx([1 / 3, 0, -2 / 3, 1 / 3])


def test_group_with_too_few_scored_is_dropped():
    rollouts = group(1.0, None, None, 0.0)
    assert not assign_advantages(rollouts)
    assert [rollout.discarded for rollout in rollouts] == ["too few scored", "unscored", "unscored", "too few scored"]


@pytest.mark.parametrize("rewards", [(1.0, 1.0, 1.0), (0.0, 0.0), (None, None), (1.0,), (0.3, 0.1 + 0.2)])
def test_groups_without_signal(rewards):
    rollouts = group(*rewards)
    assert not assign_advantages(rollouts)
    assert all(rollout.discarded and rollout.advantage == 0 for rollout in rollouts)


def test_rollout_without_tokens_is_not_trained_on():
    rollouts = group(1.0, 0.0, 1.0, 0.0)
    rollouts[0].tokens = [TokenSegment([1], False)]
    assert assign_advantages(rollouts)
    assert rollouts[0].discarded == "no tokens"


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=16))
def test_advantages_sum_to_zero(rewards):
    assert sum(advantages(rewards)) == pytest.approx(0, abs=1e-3)


EXAMPLES = [{"id": f"e{i}", "prompt_messages": []} for i in range(10)]


def ids(examples):
    return [example["id"] for example in examples]


def test_epochs_are_shuffled_seeded_and_resumable():
    stream = PromptStream(EXAMPLES, seed=1)
    first, second = ids(stream.take(10)), ids(stream.take(10))
    assert sorted(first) == sorted(second) == ids(EXAMPLES)
    assert first != second
    state = PromptStream(EXAMPLES, seed=1)
    state.take(7)
    resumed = PromptStream(EXAMPLES, seed=1)
    resumed.restore(state.state())
    assert ids(resumed.take(6)) == ids(state.take(6))
    assert ids(PromptStream(EXAMPLES, seed=2).take(10)) != first


def test_a_step_takes_different_prompts_also_across_epochs():
    stream = PromptStream(EXAMPLES, seed=1)
    stream.take(7)
    assert len(set(ids(stream.take(8)))) == 8
    assert len(PromptStream(EXAMPLES[:3], seed=1).take(8)) == 3


def test_a_prompt_of_this_step_is_not_taken_again():
    stream = PromptStream(EXAMPLES, seed=1)
    first = ids(stream.take(8))
    assert sorted(first + ids(stream.take(8, without=set(first)))) == ids(EXAMPLES)
    assert stream.take(8, without=set(ids(EXAMPLES))) == []
    assert stream.drawn <= 30, "nobody goes round the rows for what is not there"


def test_a_curriculum_that_refuses_every_row_still_fills_the_step():
    for seed in range(40):
        stream = PromptStream(EXAMPLES[:2], seed, curriculum="pass_rate")
        for example in EXAMPLES[:2]:
            stream.observe(example["id"], 0.0)
        assert sorted(ids(stream.take(2))) == ["e0", "e1"]


def test_curriculum_prefers_what_is_solved_sometimes():
    stream = PromptStream(EXAMPLES, seed=1, curriculum="pass_rate")
    for example in EXAMPLES:
        stream.observe(example["id"], 0.5 if example["id"] == "e4" else 1.0)
    drawn = [name for _ in range(60) for name in ids(stream.take(1))]
    assert drawn.count("e4") > 15
    assert len(set(drawn)) > 3, "solved rows still come up"


def test_a_step_that_is_given_up_leaves_no_trace_in_the_curriculum():
    stream = PromptStream(EXAMPLES, seed=1, curriculum="pass_rate")
    stream.observe("e1", 0.5)
    before = stream.state()
    stream.observe("e1", 1.0)
    stream.observe("e2", 1.0)
    stream.restore(before)
    assert stream.rates == {"e1": 0.5}


def test_metrics():
    first, second = group(1.0, 0.0, None), group(0.0, 0.0, 0.0)
    first[0].rewards = {"correct": 1.0, "format": 1.0}
    first[1].rewards = {"correct": 0.0, "format": 1.0}
    values = rollout_metrics([first, second])
    assert values["reward/mean"] == pytest.approx(1 / 5)
    assert (values["pass@k"], values["max@k"], values["solve_rate"]) == (0.5, 0.5, pytest.approx(1 / 5))
    assert values["unscored"] == pytest.approx(1 / 6)
    assert values["reward_stats/correct/reward/mean"] == 0.5
    assert values["response_tokens/mean"] == 1
    assert "reward/mean" not in rollout_metrics([group(None, None)])


def test_pay_for_the_form_alone_is_no_pass():
    values = rollout_metrics([group(0.2, 0.2), group(0.2, 0.9)])
    assert (values["pass@k"], values["solve_rate"]) == (0.0, 0.0)
    assert rollout_metrics([group(0.2, 0.2), group(0.2, 1.0)])["pass@k"] == 0.5


def test_the_primary_component_decides_what_is_solved_as_in_an_evaluation():
    rollouts = group(1.2, 1.0, 0.2)
    for one, correct in zip(rollouts, (1.0, 0.8, 0.0), strict=True):
        one.rewards = {"correct": correct, "format": 0.2}
    values, report = rollout_metrics([rollouts], "correct"), summarise(rollouts, primary="correct")
    assert (values["pass@k"], values["solve_rate"]) == (1.0, pytest.approx(1 / 3))
    assert (report.pass_at[3].mean, report.solve_rate.mean) == (values["pass@k"], values["solve_rate"])
    by_total, report = rollout_metrics([rollouts]), summarise(rollouts)
    assert by_total["solve_rate"] == report.solve_rate.mean == pytest.approx(2 / 3)
    partial = group(0.5, 0.2)
    assert rollout_metrics([partial])["pass@k"] == summarise(partial).pass_at[2].mean == 0.0, (
        "partial credit is no pass"
    )
