"""An `EnvHost` that writes down every hook call: how long it took, what it gave, what it changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmax.envs.reward_values import describe_error
from benchmax.rollouts.host import EnvHost

_REWARDS = ("compute_reward", "compute_group_reward")
_TRANSCRIPTS = ("messages", "completion", "messages_list", "completions")


@dataclass(slots=True)
class HookCall:
    """One call of one hook."""

    hook: str
    key: str
    rollout_id: str
    seconds: float = 0.0
    value: Any = None
    error: Exception | None = None
    mutated: bool = False
    """The hook changed the messages it was given."""

    @property
    def said(self) -> str:
        return describe_error(self.error) if self.error else ""


class WatchedHost(EnvHost):
    """Hooks run exactly as in training; only the notes are new."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.calls: list[HookCall] = []

    async def call(self, hook: str, *args: Any, deadline: float, key: str = "", label: str = "", **kwargs: Any) -> Any:
        first = args[0] if args and isinstance(args[0], str) else ""
        note = HookCall(hook, key, first)
        self.calls.append(note)
        watched = [name for name in _TRANSCRIPTS if name in kwargs] if hook in _REWARDS else []
        before = {name: deepcopy(list(kwargs[name])) for name in watched}
        began = perf_counter()
        try:
            note.value = await super().call(hook, *args, deadline=deadline, key=key, label=label, **kwargs)
            return note.value
        except Exception as error:
            note.error = error
            raise
        finally:
            note.seconds = perf_counter() - began
            note.mutated = any(list(kwargs[name]) != was for name, was in before.items())
