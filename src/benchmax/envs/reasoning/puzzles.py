"""Making and scoring puzzles, in processes of their own: reasoning-gym is loaded there and nowhere else."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmax import extras, limits
from benchmax.envs.line_processes.client import LineProcesses
from benchmax.errors import UsageError

SCRIPT = Path(__file__).with_name("puzzle_process.py")


def make_puzzles(task: str, level: str, settings: Mapping[str, Any], *, seed: int, rows: int) -> list[dict[str, Any]]:
    """Rows of a task, the same for the same arguments."""
    order = {"task": task, "level": level, "settings": dict(settings), "seed": seed, "rows": rows}
    said = _asked({"make": order})
    if "error" in said:
        chosen = ", ".join([level, *(f"{name}={value}" for name, value in settings.items())])
        raise UsageError(
            f"reasoning/{task} makes no puzzles with {chosen}: {said['error']}. Choose another level (easy, default, "
            "medium, hard) or other settings."
        )
    return list(said["rows"])


def score_puzzle(task: str, answer: str, entry: str) -> float:
    """What an answer to a puzzle is worth, from 0 to 1."""
    said = _asked({"score": {"task": task, "answer": answer, "entry": entry}})
    if "error" in said:
        raise UsageError(
            f"The column entry of a row of {task} holds no puzzle ({said['error'][:200]}). "
            "Leave it as load_dataset makes it."
        )
    return float(said["score"])


def _asked(message: Mapping[str, Any]) -> dict[str, Any]:
    extras.require("The reasoning environment", "envs")
    return _processes().ask(message)


@cache
def _processes() -> LineProcesses:
    times = limits.REASONING_SCORE_SECONDS, limits.REASONING_MAKE_SECONDS
    # Sets of texts have another order in every process, unless their hash is fixed; puzzles are made from some.
    made = LineProcesses(
        SCRIPT, list(map(str, times)), patience=4 * max(times), what="Scoring puzzles",
        variables={"PYTHONHASHSEED": "0", "MPLBACKEND": "Agg"},
    )  # fmt: skip
    atexit.register(made.close)
    return made
