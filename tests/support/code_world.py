"""What tests of the code environment share: examples of a level, and answers played against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmax import EnvHost, RolloutSettings, ScriptedModel, load_examples, run_batch
from benchmax.envs.code.code_env import CodeEnv
from benchmax.envs.code.levels import make_rows
from benchmax.envs.demonstration import turn_after
from benchmax.envs.types import Example
from benchmax.rollouts.record import Rollout


def examples_of(level: str, rows: int, seed: int = 7) -> list[Example]:
    return list(load_examples(make_rows(level, rows=rows, seed=seed), CodeEnv))


def asked(messages: Any) -> str:
    return str(next(each["content"] for each in reversed(messages) if each["role"] == "user"))


def block(code: str) -> str:
    return f"```python\n{code}\n```"


async def played(examples: list[Example], script: Callable[..., Any] | str, **arguments: Any) -> list[Rollout]:
    async with EnvHost(lambda: CodeEnv(**arguments)) as host:
        rollouts = await run_batch(host, examples, ScriptedModel(script), RolloutSettings())
    assert [rollout.error for rollout in rollouts if rollout.error] == []
    return rollouts


def solver(examples: list[Example], **arguments: Any) -> Callable[..., Any]:
    """Plays `demonstrate` of whichever example is asked."""
    by_question = {asked(example["prompt_messages"]): example for example in examples}
    env = CodeEnv(**arguments)

    async def next_turn(messages: Any) -> Any:
        last = max(n for n, each in enumerate(messages) if each["role"] == "user")
        results = [[each["content"]] for each in messages[last:] if each["role"] == "tool"]
        return await turn_after(env.demonstrate, by_question[asked(messages)], results)

    return next_turn


async def rewarded(env: CodeEnv, example: Example, code: str) -> Any:
    """What an answer with this code earns."""
    messages: Any = [{"role": "assistant", "content": block(code)}]
    return (await env.compute_reward("r", messages, example.get("task")))["tests"]
