r"""A question and its answer, out of the columns that sets of mathematical problems have.

| rows like | question | answer |
| --- | --- | --- |
| generated, GSM8K | `question` | `answer`; after `####` where there is a solution |
| MATH, AIME | `problem` | `answer`, or the last `\boxed{…}` of `solution` |
| arithmetic50 | `task` | `answer` |
| plain | `prompt` | `ground_truth` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmax.errors import UsageError

QUESTIONS = ("question", "problem", "task", "prompt")
ANSWERS = ("ground_truth", "answer", "expected_answer", "final_answer", "solution")
_MARK = "####"
_BOXES = ("\\boxed", "\\fbox")


def question_of(row: Mapping[str, Any]) -> str:
    return _text(row, QUESTIONS, "a question")


def answer_of(row: Mapping[str, Any]) -> str:
    """The bare answer, without the solution that leads to it."""
    text = _text(row, ANSWERS, "an answer")
    if _MARK in text:
        text = text.rpartition(_MARK)[2]
    elif (boxed := last_boxed(text)) is not None:
        text = boxed
    if not text.strip():
        raise UsageError(f"A row has an empty answer. Write it after {_MARK}, in \\boxed{{…}}, or in `answer`.")
    return text.strip()


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{…}` holds; None when there is none that is closed."""
    start = max(text.rfind(f"{box}{{") + len(box) + 1 if f"{box}{{" in text else -1 for box in _BOXES)
    if start < 0:
        return None
    depth = 1
    for place, char in enumerate(text[start:], start):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[start:place]
    return None


def _text(row: Mapping[str, Any], columns: tuple[str, ...], what: str) -> str:
    value = next((row[column] for column in columns if row.get(column) is not None), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    raise UsageError(f"A row needs {what} in one of the columns {', '.join(columns)}, as text. Rename or add one.")
