"""The answer in what a model wrote, and whether it is right.

The answer stands in `<answer>` tags, in the last turn that says anything. Different answers in one turn are none, so
that listing every number earns nothing. Numbers are compared here; everything else is left to a `Judge`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

from benchmax import limits
from benchmax.envs.math.numbers import read_number, same_number
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import Transcript

# Ends at the next tag, whichever it is: linear for a text of opening tags alone.
_ANSWER = re.compile(r"<answer>((?:[^<]|<(?!/?answer>))*+)</answer>", re.IGNORECASE)

SameAnswer = Callable[[str, str], bool]


def final_answer(messages: Any) -> str | None:
    """The one answer of the last turn with text; None when there is none, or several that differ."""
    found = {html.unescape(block).strip() for block in _ANSWER.findall(_last_text(messages))}
    answer = found.pop() if len(found) == 1 else ""
    return answer if 0 < len(answer) <= limits.MATH_ANSWER_CHARS else None


def _last_text(messages: Any) -> str:
    if isinstance(messages, str):
        return messages
    turns = messages.completion if isinstance(messages, Transcript) else list(messages or ())
    texts = (extract_completion_text([turn]) for turn in reversed(turns))
    return next((text for text in texts if text), "")


def decide(answer: str, truth: str) -> bool | None:
    """Whether an answer is right, where that can be said without algebra; None where it takes a judge.

    Where the truth is a plain number, the answer has to be one: an expression that equals it is not worked out.
    """
    wanted = read_number(truth)
    if wanted is None:
        return True if "".join(answer.split()) == "".join(truth.split()) else None
    said = read_number(answer)
    return said is not None and same_number(said, wanted)
