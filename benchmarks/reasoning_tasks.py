"""Every task of the reasoning environment under the doctor, and its own answers scored: one line a task.

python benchmarks/reasoning_tasks.py [TASK …]
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmax.doctor import Diagnosis, examine_sync
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import load_env_class
from benchmax.envs.reasoning.tasks import NAMES

ROWS = 40


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of one task."""

    task: str
    diagnosis: Diagnosis
    known: int
    """Rows with an answer of their own."""
    solved: int
    """Of those, how many their answer scores 1.0 on."""
    rows: int


def look(task: str, *, level: str = "", rows: int = ROWS, examples: int = 4) -> Looked:
    """Examine one task, and score its own answers."""
    env_class = load_env_class(f"reasoning/{task}")
    made, _ = env_class.load_dataset(level, rows=rows)
    diagnosis = examine_sync(env_class, rows=made, examples=examples)
    known, solved = asyncio.run(_solve(env_class, made))
    return Looked(task, diagnosis, known, solved, len(made))


async def _solve(env_class: type[BaseEnv], rows: list[Any]) -> tuple[int, int]:
    env, known, solved = env_class(), 0, 0
    for example in load_examples(rows, env_class):
        answer = env.demonstrate(example)
        if answer is not None:
            known += 1
            paid = await env.compute_reward("one", [{"role": "assistant", "content": answer}], example.get("task"))
            solved += paid["score"] == 1.0
    return known, solved


def main() -> int:
    passed = 0
    for task in sys.argv[1:] or NAMES:
        began = time.perf_counter()
        try:
            seen = look(task)
        except Exception as error:
            print(f"{task:28} {type(error).__name__}: {error}", flush=True)
            continue
        passed += seen.diagnosis.ok
        found = ", ".join(
            f"{each.severity} {each.check}" for each in seen.diagnosis.findings if each.severity != "info"
        )
        solved = f"{seen.solved}/{seen.known} of {seen.rows} solved"
        print(f"{task:28} {solved:22} {time.perf_counter() - began:5.1f} s  {found}", flush=True)
    print(f"{passed} tasks pass the doctor without error")
    return 0


if __name__ == "__main__":
    sys.exit(main())
