"""Rewards as plain functions, used by name.

    rewards = Rewards({"correct": correct, "short": short}, weights={"short": 0.2})

A function gets what its parameters name: `messages`, `completion` (the model's text), `prompt` (the last
user turn), `task`, `ground_truth`, `rollout_id`, or any argument of init_rollout. All run at once, plain
functions in threads. One that fails, hangs or returns no number leaves only its own component unscored.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from benchmax import limits
from benchmax.concurrency import call_function
from benchmax.envs.normalise_rewards import finite, name_problem
from benchmax.envs.reward_helpers import extract_completion_text, last_user_text
from benchmax.envs.types import RewardValue, Unscored
from benchmax.errors import ConfigError, describe_failure

FUNCTION_SECONDS = 0.9 * limits.REWARD_SECONDS
"""Less than compute_reward may take, so that one function that hangs does not cost the others."""
CANCEL_SECONDS = 1.0
"""How long a cancelled function may take to clean up."""


class Rewards:
    """Named reward functions, called together. A component is the function's score times its weight (1 unless set)."""

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        weights: Mapping[str, float] | None = None,
        *,
        timeout: float = FUNCTION_SECONDS,
    ) -> None:
        self.functions = dict(functions)
        self.weights = dict(weights or {})
        self.timeout = timeout
        self._check()
        self._parameters = {name: inspect.signature(function).parameters for name, function in self.functions.items()}

    async def __call__(
        self, *, messages: Any, task: Mapping[str, Any] | None = None, rollout_id: str = "", **extra: Any
    ) -> dict[str, RewardValue]:
        """Every component, as a finite float or `Unscored`."""
        values = {
            **extra,
            "messages": messages,
            "completion": extract_completion_text(messages),
            "prompt": last_user_text(messages),
            "task": task,
            "ground_truth": (task or {}).get("ground_truth", extra.get("ground_truth")),
            "rollout_id": rollout_id,
        }
        tasks = {name: asyncio.create_task(self._score(name, values)) for name in self.functions}
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=self.timeout)
            return {name: self._outcome(name, task) for name, task in tasks.items()}
        finally:
            left = [scoring for scoring in tasks.values() if not scoring.done()]
            for scoring in left:
                scoring.cancel()
            if left:
                await asyncio.wait(left, timeout=CANCEL_SECONDS)

    def _check(self) -> None:
        for name, function in self.functions.items():
            if problem := name_problem(name):
                raise ConfigError(problem)
            if not callable(function):
                raise ConfigError(f"Reward {name!r} is a {type(function).__name__}; give a function.")
        for name, weight in self.weights.items():
            if name not in self.functions:
                raise ConfigError(
                    f"There is a weight for {name!r} but no such reward; name one of {list(self.functions)}."
                )
            if isinstance(finite(name, weight), Unscored):
                raise ConfigError(f"The weight of {name!r} is {weight!r}; give a finite number.")

    async def _score(self, name: str, values: Mapping[str, Any]) -> RewardValue:
        try:
            args, kwargs = choose_arguments(self._parameters[name], values)
            value = await call_function(self.functions[name], *args, **kwargs)
        except (Exception, SystemExit) as error:
            return Unscored(f"Reward {name!r} failed: {describe_failure(error)}"[: limits.ERROR_CHARS])
        score = finite(name, value)
        return score if isinstance(score, Unscored) else finite(name, score * self.weights.get(name, 1.0))

    def _outcome(self, name: str, task: asyncio.Task[RewardValue]) -> RewardValue:
        if not task.done():
            return Unscored(f"Reward {name!r} took longer than {self.timeout:g} s; make it faster or raise `timeout`.")
        if task.cancelled():
            return Unscored(f"Reward {name!r} cancelled itself; let asyncio.CancelledError pass only when cancelled.")
        return task.result()


def choose_arguments(
    parameters: Mapping[str, inspect.Parameter], values: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for a function's parameters, out of the available values."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update({key: value for key, value in values.items() if key not in parameters})
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif name in values and parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(values[name])
        elif name in values:
            kwargs[name] = values[name]
        elif parameter.default is parameter.empty:
            raise ConfigError(f"it asks for {name!r}; there is only {', '.join(sorted(values))}. Rename the parameter.")
    return args, kwargs
