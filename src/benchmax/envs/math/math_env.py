"""Answer a mathematical question, with a calculator as an MCP server, in `<answer>` tags.

    env = MathEnvLocal()
    rows, _ = MathEnvLocal.load_dataset("words", seed=1)

`match` is 1 when the answer means the same as the right one: numbers by value, everything else by math-verify. Whether
the calculator was used does not count. One worked example shows a small model the form.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Generator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from benchmax import extras
from benchmax.envs.calculator.calculator_env import worked_product
from benchmax.envs.calculator.expressions import compute
from benchmax.envs.generated_tasks import row_example
from benchmax.envs.math import row_shapes
from benchmax.envs.math.answers import MathJudge, decide, final_answer
from benchmax.envs.math.levels import DEFAULT_LEVEL, LEVELS, SYMBOLIC, make_rows
from benchmax.envs.math.levels.task import filled
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import BaseProvisioner, LocalProvisioner, SkypilotProvisioner
from benchmax.envs.required_columns import require_task
from benchmax.envs.types import Example, Messages, RewardValue, ToolCall

WORKDIR = Path(__file__).parent / "workdir"
WORKED_EXAMPLE: Messages = worked_product(17, 23)
HUB: dict[str, dict[str, str]] = {
    "gsm8k": {"path": "openai/gsm8k", "name": "main", "split": "train"},
    "math500": {"path": "HuggingFaceH4/MATH-500", "split": "test"},
    "arithmetic50": {"path": "dawidmt/arithmetic50", "split": "train"},
}
"""Sets on the Hugging Face hub that are known by a short name; only they are fetched, and only when named."""
LOCAL_SERVERS = 64
"""Rollouts with a server at once; servers start when they are asked for."""


class MathEnv(ParallelMcpEnv):
    """Mathematical questions with a calculator, judged by value: from one-digit sums to competition style.

    One question a row: `{"question": "47 * 83?", "answer": "3901"}`; other columns that are known are in
    `row_shapes.py`.
    """

    system_prompt = "Use the calculator. Answer in <answer> tags."
    recommended_max_turns = 7
    recommended_max_tool_calls = 6
    PRIMARY_REWARD_KEY = "match"
    reward_weights: ClassVar = {"match": 1.0}

    def __init__(
        self,
        workdir_path: str | os.PathLike[str] | None = WORKDIR,
        provisioner: BaseProvisioner | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(workdir_path, provisioner, **kwargs)

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        task = {"ground_truth": row_shapes.answer_of(example)}
        generated = all(map(example.get, ("steps", "reply")))  # a column of one of these names alone is another's
        solution = {"steps": example["steps"], "reply": example["reply"]} if generated else {}
        return row_example(example, row_shapes.question_of(example), task | solution, WORKED_EXAMPLE)

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """A level, made here (`rows`, `seed`); `gsm8k`, `math500` or `arithmetic50`, or any dataset of the hub."""
        if dataset_name in LEVELS:
            if dataset_name in SYMBOLIC:
                extras.require(f"The level {dataset_name!r}", "envs")
            return make_rows(dataset_name, **kwargs), None
        known = {**HUB.get(dataset_name, {"path": dataset_name}), **kwargs}
        return super().load_dataset(known.pop("path"), **known)

    # Rewards

    @cached_property
    def _judge(self) -> MathJudge:
        return MathJudge()

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        """Scored here, where one judge stays loaded; then the rollout's servers are given back."""
        truth = require_task(task, "ground_truth")["ground_truth"]
        matches = await self._matches(final_answer(messages), str(truth))
        await self.release_rollout(rollout_id)
        return {"match": float(matches)}

    async def _matches(self, answer: str | None, truth: str) -> bool:
        if answer is None:
            return False
        decided = decide(answer, truth)
        return decided if decided is not None else await asyncio.to_thread(self._judge.same, answer, truth)

    async def shutdown(self) -> None:
        self._judge.close()
        await super().shutdown()

    # Solutions

    @classmethod
    def gold_tool_calls(cls, example: Example) -> list[ToolCall]:
        results: list[str] = []
        calls = []
        for step in _task(example).get("steps", ()):
            expression = filled(step, results)
            calls.append(ToolCall("calculate", json.dumps({"expression": expression})))
            results.append(compute(expression))
        return calls

    def demonstrate(self, example: Example) -> Generator[Any, str, None] | None:
        """The calculation of a generated task, step by step; of other rows the answer alone."""
        task = _task(example)
        return _played(task) if "ground_truth" in task else None


class MathEnvLocal(MathEnv):
    """Mathematical questions with a calculator on this machine: from one-digit sums to competition style."""

    def __init__(self, num_local_servers: int = LOCAL_SERVERS, **kwargs: Any) -> None:
        extras.require("The math environment", "mcp")
        super().__init__(WORKDIR, LocalProvisioner(WORKDIR, num_local_servers), **kwargs)


class MathEnvSkypilot(MathEnv):
    """The same with calculators on machines that SkyPilot brings up; `cloud` is any infrastructure that it knows."""

    def __init__(self, cloud: Any = None, num_nodes: int = 2, servers_per_node: int = 5, **kwargs: Any) -> None:
        machines = SkypilotProvisioner(WORKDIR, cloud or "azure", num_nodes, servers_per_node)
        super().__init__(WORKDIR, machines, **kwargs)


def _played(task: Mapping[str, Any]) -> Generator[Any, str, None]:
    results: list[str] = []
    for step in task.get("steps", ()):
        result = yield "calculate", {"expression": filled(step, results)}
        results.append(result)
    yield f"<answer>{filled(task.get('reply', task['ground_truth']), results)}</answer>"


def _task(example: Example) -> dict[str, Any]:
    return example.get("task") or {}
