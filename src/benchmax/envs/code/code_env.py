"""Write a function; hidden tests run it in the sandbox, and say how much of it is right.

    env = CodeEnv()
    rows, _ = CodeEnv.load_dataset("steps", seed=1)

`tests` is 1 when every hidden test holds. Otherwise it is a fifth of the share that holds, beyond what the best guess
would: whatever does not solve the task earns less than 0.2. One worked example shows a small model the form.
"""

from __future__ import annotations

import asyncio
import logging
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.code import row_shapes
from benchmax.envs.code.answers import defines, final_code
from benchmax.envs.code.levels import DEFAULT_LEVEL, LEVELS, make_rows
from benchmax.envs.code.reward import Case, chance, read_cases, same, worth, written
from benchmax.envs.code.solution_runner import Outcome, Runner, Tally, check_sandbox
from benchmax.envs.generated_tasks import TEXT, arguments_schema, row_example
from benchmax.envs.required_columns import require_task
from benchmax.envs.rollout_state import RolloutState
from benchmax.envs.types import Example, Messages, RewardValue, ToolDefinition, Unscored
from benchmax.sandbox import Result

logger = logging.getLogger(__name__)

WORKED_EXAMPLE: Messages = [
    {"role": "user", "content": "Write double(x) that returns x times 2.\ndouble(7) == 14"},
    {"role": "assistant", "content": "```python\ndef double(x):\n    return x * 2\n```"},
]
HUB: dict[str, dict[str, str]] = {
    "mbpp": {"path": "google-research-datasets/mbpp", "name": "full", "split": "train"},
    "humaneval": {"path": "openai/openai_humaneval", "split": "test"},
    "mbppplus": {"path": "evalplus/mbppplus", "split": "test"},
    "humanevalplus": {"path": "evalplus/humanevalplus", "split": "test"},
}
"""Sets on the Hugging Face hub that are known by a short name; only they are fetched, and only when named."""
TOOL = ToolDefinition(
    "run_python",
    "Run Python code and see what it prints. Where it defines the function, the examples of the question are tried.",
    arguments_schema(code=TEXT),
)
TOOL_TURNS, TOOL_CALLS = 6, 5


class CodeEnv(BaseEnv):
    """Write a Python function that passes hidden tests, which run in a sandbox: from one line to algorithms.

    One function a row: `{"prompt": …, "entry_point": "f", "tests": [{"args": [1], "expected": 2}, …]}`; other
    columns that are known are in `row_shapes.py`. With `tools` the model may try code before it answers.
    """

    system_prompt = "Write the function. Answer with one ```python block."
    recommended_max_turns = 1
    PRIMARY_REWARD_KEY = "tests"

    def __init__(self, tools: bool = False, **kwargs: Any) -> None:
        """Raises SandboxUnavailable on a machine that cannot confine what a model wrote."""
        super().__init__(**kwargs)
        check_sandbox()
        self._tools = tools
        if tools:
            self.recommended_max_turns, self.recommended_max_tool_calls = TOOL_TURNS, TOOL_CALLS
        self._runner = Runner()
        self._asked: RolloutState[tuple[str, list[Case]]] = RolloutState()
        """What the question of each rollout shows: a function and examples."""

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        name = row_shapes.name_of(row)
        task = {"entry_point": name, **row_shapes.tests_of(row)}
        if prefix := row_shapes.prefix_of(row):
            task["prefix"] = prefix
        if solution := row_shapes.solution_of(row):
            task["solution"] = solution
        before = WORKED_EXAMPLE if row.get("level") in LEVELS else []
        shown = {"entry_point": name, "examples": row.get("examples") or None}
        return row_example(shown, row_shapes.question_of(row), task, before, ("entry_point", "examples"))

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """A level, made here (`rows`, `seed`); `mbpp`, `humaneval` or their like, or any dataset of the hub."""
        if dataset_name in LEVELS:
            return make_rows(dataset_name, **kwargs), None
        known = {**HUB.get(dataset_name, {"path": dataset_name}), **kwargs}
        return super().load_dataset(known.pop("path"), **known)

    # Rollouts

    async def init_rollout(
        self, rollout_id: str, entry_point: str = "", examples: Any = None, **rollout_args: Any
    ) -> None:
        await self._runner.start()
        self._asked[rollout_id] = (entry_point, read_cases(examples) if examples else [])

    async def release_rollout(self, rollout_id: str) -> None:
        self._asked.pop(rollout_id, None)

    async def shutdown(self) -> None:
        await self._runner.close()

    async def list_tools(self) -> list[ToolDefinition]:
        return [TOOL] if self._tools else []

    async def run_tool(self, rollout_id: str, tool_name: str, /, **tool_args: Any) -> str:
        if not self._tools or tool_name != TOOL.name:
            return f"Error: There is no tool {tool_name!r}."
        name, examples = self._asked[rollout_id]
        return await _run_python(self._runner, tool_args.get("code"), name, examples)

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        asked = require_task(task, "entry_point", "asserts" if "asserts" in (task or {}) else "cases")
        source = final_code(messages, asked["entry_point"])
        if source is None:
            logger.info("There is no closed code block.")
            return {"tests": 0.0}
        whole = _with_prefix(source, asked["entry_point"], asked.get("prefix", ""))
        if "cases" in asked:
            return {"tests": await self._score_cases(whole, asked["entry_point"], read_cases(asked["cases"]))}
        tally = await self._runner.asserts(whole, asked["entry_point"], asked.get("setup", ""), asked["asserts"])
        return {"tests": _score(tally)}

    async def _score_cases(self, source: str, name: str, cases: list[Case]) -> float:
        outcomes = await self._runner.calls(source, name, [case.args for case in cases])
        held = [not got.failed and same(got.value, case.expected) for got, case in zip(outcomes, cases, strict=True)]
        _log_first(name, cases, outcomes, held)
        return worth(sum(held), len(cases), chance(cases))

    # Solutions

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        solution = (example.get("task") or {}).get("solution")
        return f"```python\n{solution.strip()}\n```" if solution else None

    def demonstrate(self, example: Example) -> Any:
        """The solution of the row, tried first where there are tools; None when it has none."""
        answer = self.gold_completion(example)
        if answer is None or not self._tools:
            return answer
        return [(TOOL.name, {"code": (example.get("task") or {})["solution"]}), answer]


def _with_prefix(source: str, name: str, prefix: str) -> str:
    """The solution after the head that the question shows; a body alone is put under it."""
    if not prefix:
        return source
    if not defines(source, name) and not source.startswith((" ", "\t")):
        source = textwrap.indent(source, "    ")
    return prefix + source


def _score(tally: Tally) -> RewardValue:
    if tally.unfit:
        return Unscored(f"The row's tests cannot be run apart from a solution: {tally.unfit}. Leave the row out.")
    if tally.failed or tally.error:
        logger.info("%d asserts hold, %d do not. %s", tally.held, tally.failed, tally.error)
    return worth(tally.held, tally.held + tally.failed + bool(tally.error))


def _log_first(name: str, cases: list[Case], outcomes: list[Outcome], held: list[bool]) -> None:
    """Log one line for readers of the rollout; the model does not see it."""
    if all(held):
        return
    case, got = cases[held.index(False)], outcomes[held.index(False)]
    said = got.failed or f"returned {written(got.value)}"
    arguments = ", ".join(map(written, case.args))
    logger.info("%d of %d tests hold. %s(%s): %s.", sum(held), len(held), name, arguments, said)


# The tool


async def _run_python(runner: Runner, code: Any, name: str, examples: Sequence[Case]) -> str:
    """What code prints, and whether the examples of the question hold; a mistake of the model begins with `Error:`."""
    if not isinstance(code, str) or not code.strip():
        return "Error: code must be Python source, as text."
    if len(code) > limits.CODE_ANSWER_CHARS:
        return f"Error: the code is longer than {limits.CODE_ANSWER_CHARS:,} characters."
    if not name or not examples or not defines(code, name):
        return _printed(await runner.script(code))
    calls = runner.calls(code, name, [case.args for case in examples])
    result, outcomes = await asyncio.gather(runner.script(code), calls)
    tried = [_tried(name, case, got) for case, got in zip(examples, outcomes, strict=True)]
    return "\n".join([*([_printed(result)] if result.stdout or result.stderr else []), *tried])


def _printed(result: Result) -> str:
    ended = f"Error: ended by its {result.ended_by} limit." if result.ended_by else ""
    text = "\n".join(part.rstrip() for part in (result.stdout, result.stderr, ended) if part.strip())
    return text or "(nothing was printed)"


def _tried(name: str, case: Case, got: Outcome) -> str:
    call = f"{name}({', '.join(map(written, case.args))})"
    if got.failed:
        return f"{call}: {got.failed}"
    right = same(got.value, case.expected)
    return f"{call} == {written(got.value)}" + (", right" if right else f", not {written(case.expected)}")
