"""A judge of mathematical answers, in processes of its own that hostile answers cannot hold up.

    judge = Judge()
    judge.same(r"\\sqrt{50}", r"5\\sqrt{2}")   # True

A process starts with the first answer that needs one, and loads math-verify once. An answer that takes longer than
`limits.MATH_JUDGE_SECONDS` to compare is not the same.
"""

from __future__ import annotations

from pathlib import Path

from benchmax import limits
from benchmax.envs.line_processes import LineProcesses
from benchmax.envs.math.answers import decide

SCRIPT = Path(__file__).with_name("judge_process.py")


class Judge:
    """Compares answers; may be asked from any thread, several at once."""

    def __init__(self, seconds: float = limits.MATH_JUDGE_SECONDS) -> None:
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
