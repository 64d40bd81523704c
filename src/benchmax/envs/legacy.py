"""Environments of the older style.

They preprocess a row into `{prompt, ground_truth, init_rollout_args, …}` and score with
`compute_reward(rollout_id, completion, ground_truth, **kwargs)`. Both are converted here, so the rest of
benchmax knows only one style.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from benchmax.envs.base_env import as_messages
from benchmax.envs.example_id import make_example
from benchmax.envs.types import Example, Messages


def example_from(result: Any) -> Example:
    """What dataset_preprocess returned, as an Example, in either style."""
    if not isinstance(result, Mapping):
        raise TypeError(
            f"dataset_preprocess returned {type(result).__name__}, not an Example. Return make_example(…) from it."
        )
    if "prompt_messages" in result:
        if "id" not in result:
            return make_example(result["prompt_messages"], result.get("task"), result.get("init_rollout_args"))
        return result  # type: ignore[return-value]
    if "prompt" not in result:
        raise ValueError(
            f"dataset_preprocess returned the keys {', '.join(map(str, result)) or 'none'}, "
            "but no prompt_messages. Return make_example(…) from it."
        )
    task = {key: value for key, value in result.items() if key not in ("prompt", "init_rollout_args")}
    return make_example(as_messages(result["prompt"]), task, result.get("init_rollout_args"))


@lru_cache(maxsize=256)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def is_old_reward(function: Callable[..., Any]) -> bool:
    """Whether compute_reward takes `completion, ground_truth` instead of `messages, task`."""
    names = _parameters(getattr(function, "__func__", function))
    return "messages" not in names and "task" not in names and "completion" in names


def is_old_group_reward(function: Callable[..., Any]) -> bool:
    """Whether compute_group_reward takes `completions, ground_truths`."""
    return "completions" in _parameters(getattr(function, "__func__", function))


def reward_arguments(
    function: Callable[..., Any], messages: Messages, task: dict[str, Any] | None, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments for compute_reward, in the style it is written in."""
    if not is_old_reward(function):
        return {**extra, "messages": messages, "task": task}
    task = task or {}
    rest = {key: value for key, value in task.items() if key != "ground_truth"}
    return {**rest, **extra, "completion": messages, "ground_truth": task.get("ground_truth", "")}


def group_reward_arguments(
    function: Callable[..., Any], messages_list: Sequence[Messages], tasks: Sequence[dict[str, Any] | None]
) -> dict[str, Any]:
    """Keyword arguments for compute_group_reward, in the style it is written in."""
    if not is_old_group_reward(function):
        return {"messages_list": list(messages_list), "tasks": list(tasks)}
    truths = [(task or {}).get("ground_truth", "") for task in tasks]
    return {"completions": list(messages_list), "ground_truths": truths}
