"""Multiply with a tool: call the calculator, read its answer, report it in `<answer>` tags.

A multi-turn environment that a small model cannot solve without its tool. Two worked examples show the form. A call
that computes the product pays 0.2, reporting it 0.8 more; other sums and guessed answers pay nothing.
"""

from __future__ import annotations

import json
import operator
from typing import Any, ClassVar

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.calculator.expressions import compute
from benchmax.envs.generated_tasks import (
    TEXT,
    WHOLE_ANSWER,
    arguments_schema,
    pair_rows,
    question_example,
    worked_example,
)
from benchmax.envs.required_columns import require_task
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import Example, Messages, ToolCall, ToolDefinition
from benchmax.errors import ToolError

CALCULATE = ToolDefinition("calculate", "Computes an arithmetic expression.", arguments_schema(expression=TEXT))


def worked_product(a: int, b: int) -> Messages:
    product = f"{a} * {b}"
    return worked_example(
        f"{product}?", CALCULATE.name, {"expression": product}, str(a * b), f"<answer>{a * b}</answer>"
    )


PAIRS = ((17, 23), (64, 35))
WORKED_EXAMPLE: Messages = [message for pair in PAIRS for message in worked_product(*pair)]


class CalculatorEnv(BaseEnv):
    """One question a row: `{"question": "47 * 83?", "ground_truth": "3901"}`."""

    system_prompt = "Use the calculator. Answer in <answer> tags."
    recommended_max_turns = 3
    recommended_max_tool_calls = 3
    reward_weights: ClassVar = {"called": 0.2, "correct": 0.8}
    PRIMARY_REWARD_KEY = "correct"

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        return question_example(example, WORKED_EXAMPLE)

    @classmethod
    def load_dataset(cls, dataset_name: str = "products", **kwargs: Any) -> tuple[Any, str | None]:
        """`products`: two-digit numbers multiplied, made here; any other name is looked up on the hub."""
        if dataset_name == "products":
            return make_rows(**kwargs), None
        return super().load_dataset(dataset_name, **kwargs)

    async def list_tools(self) -> list[ToolDefinition]:
        return [CALCULATE]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> str:
        expression = tool_args.get("expression")
        if tool_name != CALCULATE.name or not isinstance(expression, str):
            raise ToolError(f"The tool is {CALCULATE.name}, and takes an expression as text. Call it so.")
        return compute(expression)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, float]:
        truth = require_task(task, "ground_truth")["ground_truth"]
        said = getattr(messages, "completion", messages)
        completion: Messages = [] if said is None or isinstance(said, str) else said  # in a text no tool was called
        computed = any(message["role"] == "tool" and message.get("content") == truth for message in completion)
        answers = WHOLE_ANSWER.findall(extract_completion_text(completion[-1:] if completion else []))
        correct = computed and len(answers) == 1 and int(answers[0]) == int(truth)
        return {"called": float(computed), "correct": float(correct)}

    @classmethod
    def gold_tool_calls(cls, example: Example) -> list[ToolCall]:
        expression = str(example["prompt_messages"][-1]["content"]).rstrip("?")
        return [ToolCall("calculate", json.dumps({"expression": expression}), "call_1")]


def make_rows(*, rows: int | None = 1000, seed: int = 0) -> list[dict[str, str]]:
    """Products of two two-digit numbers but the shown ones, shuffled."""
    return pair_rows("*", operator.mul, range(11, 100), PAIRS, seed)[:rows]
