"""The calculator environment: its arithmetic, its reward, and a perfect play."""

from __future__ import annotations

import pytest

from benchmax.envs.calculator import CalculatorEnv
from benchmax.envs.calculator.calculator_env import make_rows
from benchmax.envs.calculator.expressions import compute
from benchmax.envs.types import ToolCall
from benchmax.errors import ToolError
from benchmax.models.registry import gold_model
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, run_batch, run_rollout

VALUES = [
    ("17 * 23", "391"), ("-(4 + 6) / 4", "-2.5"), ("8 / 2", "4"), ("2", "2"), ("0.1 + 0.2", "0.3"), ("1 / 3", "1/3"),
    ("2^10 % 1000", "24"), ("1,250 × 4", "5000"), ("sqrt(9/16)", "0.75"), ("sqrt(2)", "1.41421356237"),
    ("comb(10, 3)", "120"), ("gcd(84, 36)", "12"), ("7 // 2", "3"), ("2 ** -2", "0.25"), ("round(2/3, 2)", "0.67"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_it_computes(text, value):
    assert compute(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "9**9**9",
        "factorial(9999)",
        "(1/0.1)**999",
        "sqrt(-1)",
        "comb(9, 0.5)",
        "(-8)**0.5",
        "exp(999)",
        "__import__('os')",
        "a * 2",
        "1 / 0",
        "(" * 90,
        "1" * 101,
        "'x' * 9",
        "True + 1",
    ],
)
def test_anything_else_is_an_error_for_the_model(text):
    with pytest.raises(ToolError):
        compute(text)


async def test_a_perfect_model_earns_everything():
    examples = [CalculatorEnv.dataset_preprocess(row) for row in make_rows(rows=20)]
    async with EnvHost(CalculatorEnv) as host:
        rollouts = await run_batch(host, examples, gold_model(CalculatorEnv, examples))
    assert {rollout.reward for rollout in rollouts} == {1.0}
    assert {rollout.turns for rollout in rollouts} == {2}


@pytest.mark.parametrize(
    ("script", "rewards"),
    [
        (["<answer>3901</answer>"], {"called": 0.0, "correct": 0.0}),
        ([ToolCall("calculate", '{"expression": "47 * 83"}', "c"), "It is 3901."], {"called": 1.0, "correct": 0.0}),
        (
            [ToolCall("calculate", '{"expression": "1 + 1"}', "c"), "<answer>3901</answer>"],
            {"called": 0.0, "correct": 0.0},
        ),
        (
            [ToolCall("calculate", '{"expression": "47 * 83"}', "c"), "<answer>3901</answer><answer>1</answer>"],
            {"called": 1.0, "correct": 0.0},
        ),
    ],
)
async def test_only_the_asked_for_product_pays(script, rewards):
    example = CalculatorEnv.dataset_preprocess({"question": "47 * 83?", "ground_truth": "3901"})
    async with EnvHost(CalculatorEnv) as host:
        rollout = await run_rollout(host, example, ScriptedModel(script))
    assert rollout.rewards == rewards


def test_rows_hold_no_shown_product():
    questions = {row["question"] for row in make_rows(rows=None)}
    assert not questions & {"17 * 23?", "64 * 35?"}
    assert make_rows(rows=5) == make_rows(rows=5)
