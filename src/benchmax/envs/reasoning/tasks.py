"""The tasks of reasoning-gym by name, and a class for each: `reasoning/leg_counting` is `tasks.LegCounting`.

The names stand in `tasks.txt`, by subject, so that listing them loads nothing. A class is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmax.errors import NotFoundError, did_you_mean

_BY_SUBJECT = Path(__file__).with_name("tasks.txt").read_text("utf-8").splitlines()
NAMES: tuple[str, ...] = tuple(name for line in _BY_SUBJECT for name in line.partition(": ")[2].split())
"""`composite` is left out: benchmax composes environments itself."""
MIXED = (
    "spell_backward", "letter_counting", "leg_counting", "chain_sum", "products", "count_bits",
    "simple_equations", "basic_arithmetic",
)  # fmt: skip
"""Short tasks with short answers, which a small model can learn."""


def members() -> Sequence[str]:
    return NAMES


def check_task(name: str) -> None:
    """Raise NotFoundError for a name that no task has."""
    if name not in NAMES:
        hints = f"{did_you_mean(str(name), NAMES)} `benchmax env show reasoning` lists them.".strip()
        raise NotFoundError(f"There is no reasoning task {name!r}. {hints}")


def member(name: str) -> Any:
    """The class of a task."""
    check_task(name)
    return __getattr__(class_name(name))


def class_name(task: str) -> str:
    return "".join(word.capitalize() for word in task.split("_"))


def __getattr__(name: str) -> Any:
    task = next((each for each in NAMES if class_name(each) == name), None)
    if task is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from benchmax.envs.reasoning.reasoning_env import ReasoningEnv

    doc = f"Puzzles of the task `{task}` of reasoning-gym, scored by its own scorer."
    members = {"puzzle": task, "__module__": __name__, "__doc__": doc}
    return globals().setdefault(name, type(name, (ReasoningEnv,), members))
