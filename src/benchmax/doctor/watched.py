"""An `EnvHost` that writes down every hook call: how long it took, what it gave, what it changed."""

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
    """The hook changed the messages it was given."""

    @property
    def said(self) -> str:
        return describe_error(self.error) if self.error else ""


class WatchedHost(EnvHost):
    """Hooks run exactly as in training; only the notes are new."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.calls: list[HookCall] = []
        self._open: dict[Call, _Note] = {}

    def start(
        self, hook: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str = "", seconds: float | None = None
    ) -> Call:
        first = args[0] if args and isinstance(args[0], str) else ""
        written = HookCall(hook, key, first)
        self.calls.append(written)
        watched = {name: kwargs[name] for name in _TRANSCRIPTS if name in kwargs} if hook in _REWARDS else {}
        note = _Note(written, perf_counter(), watched, {name: deepcopy(list(value)) for name, value in watched.items()})
        call = super().start(hook, args, kwargs, key, seconds)
        self._open[call] = note
        return call

    async def outcome(self, call: Call, deadline: float) -> Any:
        note = self._open.pop(call, None)
        if note is None:
            return await super().outcome(call, deadline)
        try:
            note.call.value = await super().outcome(call, deadline)
            return note.call.value
        except Exception as error:
            note.call.error = error
            raise
        finally:
            note.call.seconds = perf_counter() - note.began
            note.call.mutated = any(list(note.given[name]) != was for name, was in note.before.items())


@dataclass(slots=True)
class _Note:
    call: HookCall
    began: float
    given: dict[str, Any]
    before: dict[str, Any]
