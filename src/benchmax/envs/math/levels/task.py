"""A generated task: what is asked, what is right, and how a calculator gets there."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

_RESULT = re.compile(r"@(\d)")


@dataclass(frozen=True, slots=True)
class Task:
    """`@0`, `@1` … in steps and reply stand for the results of the steps before."""

    question: str
    answer: str
    steps: tuple[str, ...] = ()
    """Expressions for the calculator."""
    reply: str = "@0"
    """The answer, from the results."""

    def as_row(self) -> dict[str, Any]:
        return {"question": self.question, "answer": self.answer, "steps": list(self.steps), "reply": self.reply}


MakeTask: TypeAlias = Callable[[random.Random], Task]


def filled(text: str, results: Sequence[str]) -> str:
    """The text with results in their places."""
    return _RESULT.sub(lambda match: results[int(match[1])], text)
