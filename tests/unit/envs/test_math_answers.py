"""The math environment's rows and answers: which answer a transcript gives, whether it is right, what is generated."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from benchmax import extras
from benchmax.envs.calculator.expressions import compute
from benchmax.envs.math.answers import MathJudge, decide, final_answer
from benchmax.envs.math.levels import LEVELS, make_rows
from benchmax.envs.math.levels.task import filled
from benchmax.envs.math.math_env import WORKDIR, MathEnv
from benchmax.envs.math.row_shapes import answer_of, question_of
from benchmax.envs.mcp.agent.reward_worker import load_rewards
from benchmax.envs.types import Transcript
from benchmax.errors import UsageError
from math_pairs import HOSTILE, NUMBERS, SYMBOLIC, pairs

SYMBOLIC_PAIRS = pairs(SYMBOLIC)


@pytest.fixture(scope="module")
def judge():
    judge = MathJudge()
    yield judge
    judge.close()


# Whether an answer is right


def test_numbers_in_every_notation_are_decided_without_algebra():
    assert [(said, truth) for said, truth, right in pairs(NUMBERS) if decide(said, truth) is not right] == []


def test_the_sign_of_an_amount_may_stand_on_either_side_of_the_currency():
    assert decide("$-5", "-5") is decide("-$5", "$-5.00") is decide("$-5 million", "-5000000") is True
    assert decide("$-5", "5") is decide("-$-5", "5") is decide("$-5", "€-5") is False


def test_there_are_five_hundred_pairs():
    assert len(pairs(NUMBERS)) + len(SYMBOLIC_PAIRS) >= 500


def wrongly_judged(judge, table):
    return [(said, truth) for said, truth, right in table if judge.same(said, truth) is not right]


def test_other_answers_are_judged_by_what_they_mean(judge):
    assert wrongly_judged(judge, SYMBOLIC_PAIRS[::6]) == []


@pytest.mark.slow
def test_all_other_answers_are_judged_by_what_they_mean(judge):
    assert len(wrongly_judged(judge, SYMBOLIC_PAIRS)) <= len(SYMBOLIC_PAIRS) // 50


@pytest.mark.parametrize("answer", ["1000000!", "(" * 150 + ")" * 150, "8} \\boxed{49\\pi", "\x00"])
def test_a_hostile_answer_is_wrong_and_costs_no_other(judge, answer):
    assert judge.same(answer, "49\\pi") is False
    assert judge.same("49 pi", "49\\pi") is True


@pytest.mark.slow
def test_no_hostile_answer_is_right_or_slow(judge):
    judge.same("1", "x")  # starts a process
    for answer in HOSTILE:
        began = time.perf_counter()
        assert judge.same(answer, "49\\pi") is False, answer
        assert time.perf_counter() - began < 10.0, answer  # 1 s of processor time, on machines that do other things too


def test_a_judge_whose_process_was_lost_starts_another():
    judge = MathJudge()
    assert judge.same("49 pi", "49\\pi")
    process = judge._processes._free.get()
    process._process.kill()
    process._process.wait()
    judge._processes._free.put(process)
    assert judge.same("49 pi", "49\\pi")
    judge.close()


def test_the_workdir_keeps_one_judge(monkeypatch, tmp_path):
    """A process that says of everything that it is the same, and notes that it was started."""
    (tmp_path / "judge_process.py").write_text(
        f"import sys; print(1, file=open({str(tmp_path / 'started')!r}, 'a'))\n"
        """print('{"ready": true}', flush=True)\nfor line in sys.stdin: print('{"same": true}', flush=True)"""
    )
    monkeypatch.setattr("benchmax.envs.math.answers.SCRIPT", tmp_path / "judge_process.py")
    match = load_rewards(WORKDIR / "reward_fn.py")["match"]
    assert [match(f"<answer>{answer}</answer>", "7\\pi") for answer in ("7 pi", "pi * 7", "2 pi + 5 pi")] == [1.0] * 3
    match.__globals__["judge"].close()
    assert (tmp_path / "started").read_text() == "1\n"


def test_without_the_package_it_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "judge_process.py").write_text('print(\'{"missing": "math_verify"}\', flush=True)')
    monkeypatch.setattr("benchmax.envs.math.answers.SCRIPT", tmp_path / "judge_process.py")
    with pytest.raises(UsageError, match=re.escape(extras.install("envs"))):
        MathJudge().same("49 pi", "49\\pi")


# Which answer it is


def said(*texts):
    turns = [{"role": "assistant", "content": text} for text in texts]
    return Transcript(
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": "<answer>1</answer>"}, *turns], 2
    )


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        (said("<answer>7</answer>"), "7"),
        (said("<answer>6</answer>", "No: <answer> 7 </answer>"), "7"),
        (said("<answer>7</answer> I repeat: <answer>7</answer>"), "7"),
        (said("<answer>6</answer><answer>7</answer>"), None),
        (said("".join(f"<answer>{n}</answer>" for n in range(99))), None),
        (said("<answer></answer>"), None),
        (said("7"), None),
        (said(), None),
        (said("<answer>x &lt; 3</answer>"), "x < 3"),
        (said("<answer>x < 3</answer>"), "x < 3"),
        (said("<answer>" + "7" * 301 + "</answer>"), None),
        ("<answer>7</answer>", "7"),
        ([{"role": "assistant", "content": "<answer>7</answer>"}, {"role": "tool", "content": "8"}], "7"),
        ([{"role": "assistant", "content": None}], None),
    ],
)
def test_the_one_answer_of_the_last_turn_counts(messages, answer):
    assert final_answer(messages) == answer


def test_a_text_of_opening_tags_takes_no_time():
    began = time.process_time()
    assert final_answer("<answer>" * 100_000) is None
    assert time.process_time() - began < 1.0


# Rows


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 1,024"}, "How many?", "1,024"),
        ({"problem": "Find x.", "solution": "So \\boxed{1}, no: $\\boxed{\\frac{1}{2}}$."}, "Find x.", "\\frac{1}{2}"),
        ({"problem": "Find x.", "answer": "\\{1, 2\\}", "solution": "\\boxed{7}"}, "Find x.", "\\{1, 2\\}"),
        ({"task": "3 + 4", "answer": 7}, "3 + 4", "7"),
        ({"prompt": "3 + 4", "ground_truth": "7"}, "3 + 4", "7"),
    ],
)
def test_columns_of_known_sets_are_read(row, question, answer):
    assert (question_of(row), answer_of(row)) == (question, answer)


def test_a_column_steps_of_another_set_is_no_calculation():
    row = {"question": "2 + 2?", "answer": "4", "steps": ["Add 2 and 2."]}
    example = MathEnv.dataset_preprocess(row)
    assert example.get("task") == {"ground_truth": "4"}
    assert MathEnv.gold_tool_calls(example) == []


@pytest.mark.parametrize("row", [{"question": "?"}, {"answer": "7"}, {"question": "?", "answer": "so\n####"}])
def test_a_row_without_question_or_answer_says_what_is_missing(row):
    with pytest.raises(UsageError, match=r"answer|question"):
        question_of(row), answer_of(row)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_made_by_its_seed(level):
    rows = make_rows(level, rows=200, seed=3)
    assert rows == make_rows(level, rows=200, seed=3)
    assert rows != make_rows(level, rows=200, seed=4)
    assert len({row["question"] for row in rows}) == 200


@pytest.mark.parametrize("level", LEVELS)
def test_the_steps_of_a_task_lead_to_its_answer(level, judge):
    for row in make_rows(level, rows=40, seed=5):
        results: list[str] = []
        for step in row["steps"]:
            results.append(compute(filled(step, results)))
        assert judge.same(filled(row["reply"], results), row["answer"]), row


@pytest.mark.parametrize("level", LEVELS)
def test_no_single_answer_is_right_for_many(level):
    answers = Counter(row["answer"] for row in make_rows(level, rows=1000))
    assert answers.most_common(1)[0][1] < 100
