"""An `EnvHost` that records every hook call: how long it took, what it returned, what it changed, where it raised."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from traceback import walk_tb
from typing import Any

from benchmax.envs.base_env import BaseEnv
from benchmax.errors import describe_failure
from benchmax.rollouts import hooks
from benchmax.rollouts.hooks import Call
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.scoring import deep_copy

_REWARDS = ("compute_reward", "compute_group_reward")
_RECEIVED = {
    "messages": "messages", "completion": "messages", "messages_list": "messages", "completions": "messages",
    "task": "task", "tasks": "task",
}  # fmt: skip
"""The arguments of rewards that they must leave as they are, and what each holds."""


@dataclass(slots=True)
class HookCall:
    """One call of one hook."""

    hook: str
    key: str
    rollout_id: str
    seconds: float = 0.0
    value: Any = None
    error: Exception | None = None
    mutated: str = ""
    """What the hook changed of what it received: the messages or the task."""

    @property
    def message(self) -> str:
        return describe_failure(self.error) if self.error else ""


class RecordingHost(EnvHost):
    """Hooks run exactly as in training, and are recorded."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.calls: list[HookCall] = []
        self._running: dict[Call, tuple[HookCall, float, list[tuple[str, Any, Any]]]] = {}
        """Each call with when it began, and what it received with a copy of it."""

    def note_weights(self, weights: Any, components: Iterable[str]) -> None:
        """The check `unknown-weight` tells of them."""

    def start(
        self, hook: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str = "", seconds: float | None = None
    ) -> Call:
        record = HookCall(hook, key, args[0] if args and isinstance(args[0], str) else "")
        self.calls.append(record)
        received = [(what, kwargs[name]) for name, what in _RECEIVED.items() if name in kwargs and hook in _REWARDS]
        copies = [(what, value, deep_copy(_plain(value))) for what, value in received]
        began = perf_counter()
        call = super().start(hook, args, kwargs, key, seconds)
        self._running[call] = record, began, copies
        return call

    async def outcome(self, call: Call, deadline: float) -> Any:
        if call not in self._running:
            return await super().outcome(call, deadline)
        record, began, copies = self._running.pop(call)
        try:
            record.value = await super().outcome(call, deadline)
            return record.value
        except Exception as error:
            record.error = error
            raise
        finally:
            record.seconds = perf_counter() - began
            record.mutated = next((what for what, now, before in copies if _plain(now) != before), "")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


# What the environment's own code did wrong


def refused_call(error: BaseException | None) -> bool:
    """Whether the hook could not be called with its arguments: the innermost frame is the one that calls it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)] if isinstance(error, TypeError) else []
    return bool(frames) and frames[-1].f_globals.get("__name__") == hooks.__name__


def signature_of(hook: str) -> str:
    """The first line of a hook as it is documented."""
    function = getattr(BaseEnv, hook)
    given = inspect.signature(function).parameters.values()
    names = ", ".join(f"{'**' * (each.kind is each.VAR_KEYWORD)}{each.name}" for each in given)
    return f"{'async ' * inspect.iscoroutinefunction(function)}def {hook}({names})"
