"""Puzzles of reasoning-gym: algebra, algorithms, games, graphs, logic, and more, each scored by its own scorer.

    rows, _ = ReasoningEnv.load_dataset("leg_counting:hard", rows=200, seed=1)
    benchmax train reasoning/leg_counting --data hard:max_animals=4

One worked puzzle shows a small model the form, where it is short.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from benchmax import extras, limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.generated_tasks import row_example
from benchmax.envs.line_processes.client import LineProcesses
from benchmax.envs.loading import json_or_text
from benchmax.envs.reasoning.tasks import MIXED, NAMES, check_task
from benchmax.envs.required_columns import require_columns, require_task
from benchmax.envs.reward_helpers import only_answer
from benchmax.envs.types import Example, Messages, RewardValue
from benchmax.errors import UsageError

SCRIPT = Path(__file__).with_name("puzzle_process.py")
LEVELS = ("easy", "default", "medium", "hard")
"""`default` is what reasoning-gym makes when nothing is set, the others are levels of its curricula."""
ROWS = 400
FEW_ROWS = {"knight_swap": 32, "sokoban": 96}
"""Of tasks whose puzzles take long to make."""
FEWEST = 64
"""Easy puzzles, below which `default` ones are taken where no level is named."""
EXAMPLE_CHARS = 600
"""The longest puzzle, with its answer, that is shown before another."""


class ReasoningEnv(BaseEnv):
    """Short puzzles of eight kinds; every other task of reasoning-gym by its name, `reasoning/TASK`.

    One puzzle a row: `{"task": "leg_counting", "question": "…", "answer": "…", "entry": "…"}`, where `entry` is what
    the task's scorer needs. `floor` is what answers to other puzzles earn, and pays nothing; `exact` says that only
    the answer itself is right.
    """

    puzzle: ClassVar[str] = ""
    """The one task of a class; rows of any task when empty."""
    system_prompt = "Solve the puzzle. Give the answer alone in <answer> tags."
    recommended_max_turns = 1
    PRIMARY_REWARD_KEY = "score"
    reward_weights: ClassVar = {"score": 1.0}

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        require_columns(example, "task", "question", "entry")
        check_task(example["task"])
        before: Messages = []
        if shown := example.get("shown"):
            question, answer = shown
            before = [{"role": "user", "content": question}, {"role": "assistant", "content": _tagged(answer)}]
        truth = {"ground_truth": example["answer"]} if example.get("answer") is not None else {}
        known = {name: example[name] for name in ("exact", "floor") if example.get(name)}
        task = {**truth, **known, "puzzle": example["task"], "entry": example["entry"]}
        return row_example(example, example["question"], task, before)

    @classmethod
    def load_dataset(cls, dataset_name: str = "", **kwargs: Any) -> tuple[list[dict[str, Any]], None]:
        """`LEVEL:SETTING=VALUE`, and without a task of its own `TASK:LEVEL:SETTING=VALUE`, each part optional.

        `rows` and `seed` are the number of rows and their seed; further arguments are settings of the task.
        """
        task, level, settings = cls._read(dataset_name)
        rows, seed = kwargs.pop("rows", None) or FEW_ROWS.get(task, ROWS), int(kwargs.pop("seed", 0))
        if task:
            return _puzzles(task, level, settings | kwargs, seed, rows), None
        most = -(-rows // len(MIXED))
        made = [_puzzles(name, level, settings | kwargs, seed, most) for name in MIXED]
        mixed = [row for number in range(most) for each in made for row in each[number : number + 1]]
        return mixed[:rows], None

    @classmethod
    def _read(cls, name: str) -> tuple[str, str, dict[str, Any]]:
        """Task, level and settings that a dataset's name means."""
        task, level, settings = cls.puzzle, "", dict[str, Any]()
        for word in filter(None, name.split(":")):
            setting, equals, value = word.partition("=")
            if equals:
                settings[setting] = json_or_text(value)
            elif word in LEVELS:
                level = word
            elif word in NAMES and not cls.puzzle:
                task = word
            else:
                raise UsageError(
                    f"{name!r} names no puzzles here: {word!r} is neither a level ({', '.join(LEVELS)}) nor "
                    f"SETTING=VALUE{'' if cls.puzzle else ' nor a task'}. Write it like --data hard:max_animals=4."
                )
        return task, level, settings

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        """What the scorer of the task gives the answer, from 0 to 1; 0 for none, and for several different ones."""
        given = require_task(task, "puzzle", "entry")
        answer = only_answer(messages, limits.REASONING_ANSWER_CHARS)
        return {"score": 0.0 if answer is None else await _score(answer, given)}

    # Solutions

    def demonstrate(self, example: Example) -> str | None:
        truth = (example.get("task") or {}).get("ground_truth")
        return None if truth is None else _tagged(truth)


async def _score(answer: str, task: Mapping[str, Any]) -> float:
    truth = task.get("ground_truth")
    if truth is not None and answer == str(truth).strip():
        return 1.0
    if task.get("exact"):
        return 0.0
    paid = await asyncio.to_thread(score_puzzle, task["puzzle"], answer, task["entry"])
    floor = float(task.get("floor", 0.0))
    return max(0.0, (paid - floor) / (1.0 - floor))


def _puzzles(task: str, level: str, settings: Mapping[str, Any], seed: int, rows: int) -> list[dict[str, Any]]:
    """Rows of one task, each with the same solved puzzle before it where there is a short one."""
    made = make_puzzles(task, level or "easy", settings, seed=seed, rows=rows + 1)
    if not level and len(made) < min(rows, FEWEST):  # there are hardly any easy ones
        made = max(made, make_puzzles(task, "default", settings, seed=seed, rows=rows + 1), key=len)
    short = (row for row in made if "answer" in row and len(row["question"]) + len(row["answer"]) <= EXAMPLE_CHARS)
    if (shown := next(short, None)) is None:
        return made[:rows]
    pair = [shown["question"], shown["answer"]]
    return [{**row, "shown": pair} for row in made if row is not shown][:rows]


def _tagged(answer: Any) -> str:
    return f"<answer>{answer}</answer>"


# Making and scoring puzzles, in processes of their own: reasoning-gym is loaded there and nowhere else


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
