r"""The answer in what a model wrote, and whether it is right.

    judge = MathJudge()
    judge.same(r"\sqrt{50}", r"5\sqrt{2}")   # True

The answer stands in `<answer>` tags, in the last turn that says anything. Different answers in one turn are none, so
that listing every number earns nothing. Numbers are compared here; everything else is compared by math-verify in
processes of its own (`judge_process.py`), which hostile answers cannot hold up: one that takes longer than
`limits.MATH_JUDGE_SECONDS` is not the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.line_processes.client import LineProcesses
from benchmax.envs.math.number_equality import read_number, same_number
from benchmax.envs.reward_helpers import only_answer

SCRIPT = Path(__file__).with_name("judge_process.py")


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


class MathJudge:
    """Compares answers; may be asked from any thread, several at once. Its processes start when one is needed."""

    def __init__(self) -> None:
        seconds = limits.MATH_JUDGE_SECONDS
        self._processes = LineProcesses(SCRIPT, [str(seconds)], patience=10 * seconds, what="The judge of this answer")

    def same(self, answer: str, truth: str) -> bool:
        """Whether an answer is right."""
        decided = decide(answer, truth)
        if decided is not None:
            return decided
        return bool(self._processes.ask({"answer": answer, "truth": truth})["same"])

    def close(self) -> None:
        """End the processes that are not busy; the others end with this one."""
        self._processes.close()
