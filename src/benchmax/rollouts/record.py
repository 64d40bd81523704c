"""The `Rollout` record: everything about one rollout, in one object.

Trainer, files, database, console and exports all use it; there is no second form of it.
`to_dict` returns strict JSON (no NaN), one line of a record file; `from_dict` reads it back and ignores
fields it does not know.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from benchmax.envs.types import Messages, Transcript
from benchmax.errors import EnvLost, RecordError, describe_failure
from benchmax.models.base import TokenSegment, Usage

FORMAT_VERSION = 1

_ids = random.Random()
if hasattr(os, "register_at_fork"):  # a child must not continue its parent's numbers
    os.register_at_fork(after_in_child=_ids.seed)


def new_id() -> str:
    """A unique id of 128 random bits, from a generator of this module, because asking the system is slow."""
    return f"{_ids.getrandbits(128):032x}"


class Termination(StrEnum):
    """Why a rollout ended."""

    FINISHED = "finished"
    """The model wrote a final answer."""
    OUTPUT_EXCEEDED = "output_exceeded"
    """A turn was cut at its token limit."""
    CONTEXT_EXCEEDED = "context_exceeded"
    """The conversation no longer fits the model."""
    MAX_TURNS = "max_turns_exceeded"
    TOOL_BUDGET = "tool_budget_exceeded"
    TOKEN_BUDGET = "token_budget_exceeded"
    COST_BUDGET = "cost_budget_exceeded"
    TIME_BUDGET = "time_budget_exceeded"
    ENV_ERROR = "env_error"
    """init_rollout or list_tools failed, or the environment's process or an MCP server was lost."""
    MODEL_ERROR = "model_error"
    """The model returned no reply within its retry budget."""
    REWARD_ERROR = "reward_error"
    """The rollout finished; its reward could not be computed."""
    GROUP_REWARD_ERROR = "group_reward_error"
    """The rollout finished; its group's reward could not be computed."""
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Termination:
        """A reason that a later version wrote."""
        return cls.UNKNOWN


SCORABLE = frozenset(Termination) - {
    Termination.ENV_ERROR, Termination.MODEL_ERROR, Termination.REWARD_ERROR, Termination.GROUP_REWARD_ERROR,
    Termination.UNKNOWN,
}  # fmt: skip
"""Terminations after which a reward is computed: the model caused them, not a failure around it."""
DEMONSTRATION = "demonstration"
"""The split of a solution that a model was shown; nobody sampled it, so no average counts it."""


@dataclass(slots=True)
class Failure:
    """An error, as data: the type for machines, the message for people."""

    type: str
    message: str
    where: str = ""

    @classmethod
    def of(cls, error: BaseException, where: str) -> Failure:
        kind = type(error).__name__
        return cls(kind, describe_failure(error).removeprefix(f"{kind}: "), where)

    def __str__(self) -> str:
        """All three: of a KeyError, the message alone is only the key."""
        return f"{self.type} in {self.where}: {self.message}"


@dataclass(slots=True)
class ToolEvent:
    """One tool call that was made."""

    turn: int
    name: str
    ok: bool
    seconds: float


@dataclass(slots=True)
class LogLine:
    """One line an environment logged during the rollout."""

    level: str
    message: str
    seconds: float
    """Since the rollout began."""


@dataclass(slots=True)
class Rollout:
    """One attempt of a model at one example."""

    id: str
    example_id: str
    sample: int = 0
    """Index among the siblings that share the example."""
    attempt: int = 0
    env: str = ""
    model: str = ""
    split: str = "eval"
    step: int | None = None
    messages: Transcript = field(default_factory=Transcript)
    """The whole conversation; `messages.completion_start` is where the model began."""
    task: dict[str, Any] | None = None
    init_rollout_args: dict[str, Any] | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    """Scored components, group components included."""
    unscored: dict[str, str] = field(default_factory=dict)
    """Components that could not be scored, with the reason. Never counted as 0."""
    reward: float | None = None
    """The weighted sum of all components; None while any of them is unscored."""
    termination: Termination = Termination.UNKNOWN
    ok: bool = False
    """Set at the very end, for a rollout that ran and was fully scored."""
    error: Failure | None = None
    turns: int = 0
    tool_events: list[ToolEvent] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    tokens: list[TokenSegment] = field(default_factory=list)
    """Exact tokens of the whole conversation, when the model reports them."""
    logs: list[LogLine] = field(default_factory=list)
    started_at: float = 0.0
    """Unix time."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by phase: init, model, tools, reward, total."""
    advantage: float | None = None
    """Set by the trainer."""
    discarded: str | None = None
    """Why the trainer left this rollout out of the update."""

    @property
    def prompt(self) -> Messages:
        return self.messages.prompt

    @property
    def completion(self) -> Messages:
        return self.messages.completion

    @property
    def scorable(self) -> bool:
        """Whether the model caused its end; a prompt that never fitted is not the model's doing."""
        never_fit = self.termination is Termination.CONTEXT_EXCEEDED and not self.turns
        return self.termination in SCORABLE and not never_fit

    @property
    def lost(self) -> bool:
        """Whether the environment's process ended during it, so that it is played again."""
        return self.error is not None and self.error.type == EnvLost.__name__

    @property
    def cut_off(self) -> bool:
        """Whether its last turn was cut. A turn that used up the tokens and called a tool was complete."""
        if self.termination is Termination.TOKEN_BUDGET:
            return not self.messages[-1].get("tool_calls")
        return self.termination is Termination.OUTPUT_EXCEEDED

    @property
    def key(self) -> tuple[str, int]:
        """Identifies a rollout of a batch after a restart."""
        return self.example_id, self.sample

    def to_dict(self) -> dict[str, Any]:
        """A strict-JSON form; the fields of `_OPTIONAL` are left out when they are empty."""
        values = {name: getattr(self, name) for name in self.__slots__}
        kept = {name: value for name, value in values.items() if name not in _OPTIONAL or value not in (None, [])}
        record = {"v": FORMAT_VERSION, **kept, "messages": list(self.messages), "usage": _plain(self.usage)}
        record |= {"completion_start": self.messages.completion_start, "termination": self.termination.value}
        if self.error:
            record["error"] = _plain(self.error)
        for name in _LISTS.keys() & kept.keys():
            record[name] = [_plain(part) for part in kept[name]]
        return record

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Rollout:
        """Read a record; unknown fields are ignored, a newer format is refused."""
        if raw.get("v", 1) > FORMAT_VERSION:
            raise RecordError(
                f"This rollout was written in format {raw['v']}; this benchmax reads up to {FORMAT_VERSION}. "
                "Upgrade benchmax to read it."
            )
        values = {name: raw[name] for name in cls.__slots__ if name in raw}
        values |= {name: dict(raw.get(name, {})) for name in ("rewards", "unscored", "seconds")}
        values |= {name: [_read(kind, part) for part in raw.get(name, ())] for name, kind in _LISTS.items()}
        values["messages"] = Transcript(raw.get("messages", ()), raw.get("completion_start"))
        values["usage"] = _read(Usage, raw.get("usage", {}))
        values["termination"] = Termination(raw.get("termination", "unknown"))
        values["error"] = _read(Failure, raw["error"]) if raw.get("error") else None
        return cls(**values)


_OPTIONAL = frozenset({"error", "tool_events", "tokens", "logs", "advantage", "discarded"})
_LISTS = {"tool_events": ToolEvent, "tokens": TokenSegment, "logs": LogLine}


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _read(kind: Any, raw: Mapping[str, Any]) -> Any:
    """A part of a record; unknown fields are ignored."""
    return kind(**{name: value for name, value in raw.items() if name in kind.__slots__})
