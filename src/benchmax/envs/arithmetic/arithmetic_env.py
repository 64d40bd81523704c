"""Add two numbers and put the sum in `<answer>` tags.

The quickstart's environment. One example turn shows the form, because a small model given none finds it too rarely to
learn from. A parsable answer pays 0.2, the right one 0.8 more: empty or wordy tags pay nothing.
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.generated_tasks import WHOLE_ANSWER, pair_rows, question_example
from benchmax.envs.required_columns import require_task
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import Example, Messages

NUMBERS = {"sums": (0, 9), "sums2": (10, 99)}
"""The least and the largest number of the rows of a name."""
WORKED_EXAMPLE: Messages = [
    {"role": "user", "content": "5 + 7?"},
    {"role": "assistant", "content": "5 + 7 = <answer>12</answer>"},
]


class ArithmeticEnv(BaseEnv):
    """One question a row: `{"question": "3 + 4?", "ground_truth": "7"}`."""

    system_prompt = "Answer in <answer> tags."
    recommended_max_turns = 1
    reward_weights: ClassVar = {"format": 0.2, "correct": 0.8}
    PRIMARY_REWARD_KEY = "correct"

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        return question_example(example, WORKED_EXAMPLE)

    @classmethod
    def load_dataset(cls, dataset_name: str = "sums", **kwargs: Any) -> tuple[Any, str | None]:
        """`sums` (one digit) or `sums2` (two digits), made here; any other name is looked up on the hub."""
        if dataset_name in NUMBERS:
            return make_rows(*NUMBERS[dataset_name], **kwargs), None
        return super().load_dataset(dataset_name, **kwargs)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> dict[str, float]:
        truth = require_task(task, "ground_truth")["ground_truth"]
        answer = WHOLE_ANSWER.search(extract_completion_text(messages))
        correct = answer is not None and int(answer[1]) == int(truth)
        return {"format": float(answer is not None), "correct": float(correct)}


def make_rows(low: int, high: int, *, rows: int | None = None, seed: int = 0) -> list[dict[str, str]]:
    """Every sum of two numbers from `low` to `high` but the shown one, shuffled; the first `rows` of them."""
    return pair_rows("+", operator.add, range(low, high + 1), [(5, 7)], seed)[:rows]
