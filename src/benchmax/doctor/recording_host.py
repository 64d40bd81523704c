"""An `EnvHost` that records every hook call: how long it took, what it returned, what it changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmax.errors import describe_error
from benchmax.rollouts.hooks import Call
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
    """The hook changed the messages it received."""

    @property
    def message(self) -> str:
        return describe_error(self.error) if self.error else ""


class RecordingHost(EnvHost):
    """Hooks run exactly as in training, and are recorded."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.calls: list[HookCall] = []
        self._running: dict[Call, tuple[HookCall, float, list[tuple[Any, Any]]]] = {}
        """Each call with when it began, and the messages it received with a copy of them."""

    def start(
        self, hook: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str = "", seconds: float | None = None
    ) -> Call:
        record = HookCall(hook, key, args[0] if args and isinstance(args[0], str) else "")
        self.calls.append(record)
        received = [kwargs[name] for name in _TRANSCRIPTS if name in kwargs and hook in _REWARDS]
        copies = [(value, deepcopy(list(value))) for value in received]
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
            record.mutated = any(list(now) != before for now, before in copies)
