"""The answer in what a model wrote, and whether it is right.

The answer stands in `<answer>` tags, in the last turn that says anything. Different answers in one turn are none, so
that listing every number earns nothing. Numbers are compared here; everything else is left to a `Judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmax import limits
from benchmax.envs.math.numbers import read_number, same_number
from benchmax.envs.reward_helpers import only_answer

SameAnswer = Callable[[str, str], bool]


def final_answer(messages: Any) -> str | None:
    """The one answer of the last turn with text; None when there is none, or several that differ."""
    return only_answer(messages, limits.MATH_ANSWER_CHARS)


def decide(answer: str, truth: str) -> bool | None:
    """Whether an answer is right, where that can be said without algebra; None where it takes a judge.

    Where the truth is a plain number, the answer has to be one: an expression that equals it is not worked out.
    """
    wanted = read_number(truth)
    if wanted is None:
        return True if "".join(answer.split()) == "".join(truth.split()) else None
    said = read_number(answer)
    return said is not None and same_number(said, wanted)
