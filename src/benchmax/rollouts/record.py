"""The `Rollout` record: everything one rollout was, in one object.

Trainer, adapters, files, database, console and exports all speak it; there is no second spelling.
`to_dict` gives strict JSON (no NaN), one line of a record file; `from_dict` reads it back, ignoring
fields it does not know.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from benchmax.envs.reward_values import describe_error
from benchmax.envs.types import Messages, Transcript
from benchmax.errors import EnvLost, RecordError
from benchmax.models.base import TokenSegment, Usage

Part = TypeVar("Part")

FORMAT_VERSION = 1

_names = random.Random()
if hasattr(os, "register_at_fork"):  # a child must not go on with its parent's numbers
    os.register_at_fork(after_in_child=_names.seed)


def new_id() -> str:
    """A name that no other rollout has; 128 random bits, from a generator of our own, as asking the system is slow."""
    return f"{_names.getrandbits(128):032x}"


class Termination(StrEnum):
    """Why a rollout ended."""

    FINISHED = "finished"
    """The model gave a final answer."""
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
    """The model gave no reply within its retry budget."""
    REWARD_ERROR = "reward_error"
    """The rollout finished; its reward could not be computed."""
    GROUP_REWARD_ERROR = "group_reward_error"
    """The rollout finished; its group's reward could not be computed."""
    UNKNOWN = "unknown"


SCORABLE = frozenset(
    {
        Termination.FINISHED,
        Termination.OUTPUT_EXCEEDED,
        Termination.CONTEXT_EXCEEDED,
        Termination.MAX_TURNS,
        Termination.TOOL_BUDGET,
        Termination.TOKEN_BUDGET,
        Termination.COST_BUDGET,
        Termination.TIME_BUDGET,
    }
)
"""Ends after which a reward is computed: the model's own doing, not a failure around it."""


@dataclass(slots=True)
class Failure:
    """An error, as data: the type for machines, the message for people."""

    type: str
    message: str
    where: str = ""

    @classmethod
    def of(cls, error: BaseException, where: str) -> Failure:
        kind = type(error).__name__
        return cls(kind, describe_error(error).removeprefix(f"{kind}: "), where)


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
    """The whole conversation; `messages.completion_start` tells where the model began."""
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
    """Stamped at the very end of a rollout that ran and was fully scored."""
    error: Failure | None = None
    turns: int = 0
    tool_events: list[ToolEvent] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    tokens: list[TokenSegment] = field(default_factory=list)
    """Exact tokens of the whole conversation, when the model tells them."""
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
        """Whether it ended by the model's own doing; a prompt that did not fit was never the model's."""
        never_fit = self.termination is Termination.CONTEXT_EXCEEDED and not self.turns
        return self.termination in SCORABLE and not never_fit

    @property
    def lost(self) -> bool:
        """Whether the environment's process ended under it; played again, it may well be whole."""
        return self.error is not None and self.error.type == EnvLost.__name__

    @property
    def cut_off(self) -> bool:
        """Whether its last turn was cut. One that ran out of tokens by calling a tool had ended that turn."""
        if self.termination is Termination.TOKEN_BUDGET:
            return not self.messages[-1].get("tool_calls")
        return self.termination is Termination.OUTPUT_EXCEEDED

    @property
    def key(self) -> tuple[str, int]:
        """What makes a rollout of a batch the same one after a restart."""
        return self.example_id, self.sample

    def to_dict(self) -> dict[str, Any]:
        """A strict-JSON form; empty fields are left out."""
        record: dict[str, Any] = {
            "v": FORMAT_VERSION,
            "id": self.id,
            "example_id": self.example_id,
            "sample": self.sample,
            "attempt": self.attempt,
            "env": self.env,
            "model": self.model,
            "split": self.split,
            "step": self.step,
            "messages": list(self.messages),
            "completion_start": self.messages.completion_start,
            "task": self.task,
            "init_rollout_args": self.init_rollout_args,
            "rewards": self.rewards,
            "unscored": self.unscored,
            "reward": self.reward,
            "termination": self.termination.value,
            "ok": self.ok,
            "turns": self.turns,
            "usage": _plain(self.usage),
            "started_at": self.started_at,
            "seconds": self.seconds,
        }
        if self.error:
            record["error"] = _plain(self.error)
        if self.tool_events:
            record["tool_events"] = [_plain(event) for event in self.tool_events]
        if self.tokens:
            record["tokens"] = [_plain(segment) for segment in self.tokens]
        if self.logs:
            record["logs"] = [_plain(line) for line in self.logs]
        if self.advantage is not None:
            record["advantage"] = self.advantage
        if self.discarded is not None:
            record["discarded"] = self.discarded
        return record

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Rollout:
        """Read a record; unknown fields are ignored, a newer format is refused."""
        if raw.get("v", 1) > FORMAT_VERSION:
            raise RecordError(
                f"This rollout was written in format {raw['v']}; this benchmax reads up to {FORMAT_VERSION}. "
                "Upgrade benchmax to read it."
            )
        error = raw.get("error")
        return cls(
            id=raw["id"],
            example_id=raw["example_id"],
            sample=raw.get("sample", 0),
            attempt=raw.get("attempt", 0),
            env=raw.get("env", ""),
            model=raw.get("model", ""),
            split=raw.get("split", "eval"),
            step=raw.get("step"),
            messages=Transcript(raw.get("messages", ()), raw.get("completion_start")),
            task=raw.get("task"),
            init_rollout_args=raw.get("init_rollout_args"),
            rewards=dict(raw.get("rewards", {})),
            unscored=dict(raw.get("unscored", {})),
            reward=raw.get("reward"),
            termination=_termination(raw.get("termination", "unknown")),
            ok=raw.get("ok", False),
            error=_read(Failure, error) if error else None,
            turns=raw.get("turns", 0),
            tool_events=[_read(ToolEvent, event) for event in raw.get("tool_events", ())],
            usage=_read(Usage, raw.get("usage", {})),
            tokens=[_read(TokenSegment, segment) for segment in raw.get("tokens", ())],
            logs=[_read(LogLine, line) for line in raw.get("logs", ())],
            started_at=raw.get("started_at", 0.0),
            seconds=dict(raw.get("seconds", {})),
            advantage=raw.get("advantage"),
            discarded=raw.get("discarded"),
        )


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _read(kind: type[Part], raw: Mapping[str, Any]) -> Part:
    """A part of a record; fields it does not know are left out."""
    return kind(**{name: value for name, value in raw.items() if name in kind.__slots__})  # type: ignore[attr-defined]


def _termination(name: str) -> Termination:
    try:
        return Termination(name)
    except ValueError:
        return Termination.UNKNOWN
