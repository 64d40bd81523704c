"""Runs: status, events, metrics, logs, settings, use of the machine, checkpoints."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from benchmax.platform.wire.base import PlainText, Time, Wire
from benchmax.platform.wire.environments import OneOffStatus
from benchmax.platform.wire.values import RunStatus


class RunInfo(Wire):
    id: str
    name: str
    status: RunStatus
    status_reason: str
    created_at: Time
    updated_at: Time
    started_at: Time | None
    ended_at: Time | None
    is_public: bool
    is_owner: bool
    has_launcher_job: bool
    archived: bool
    tags: list[str]
    total_steps: int | None
    latest_step: int | None
    latest_activity_message: str
    launcher_args: dict[str, Any] | None = None
    pinned: bool = False
    notes: str = ""
    type: str = "simple"
    """The kind of run asked for; `sft` is a supervised one."""
    parent_run_id: str | None = None
    """The run it was forked from."""
    model: str = ""
    environment: str = ""
    """What the environment was uploaded as, or the name of a built-in one."""
    task_digest: str = ""
    """Equal for runs that train on the same rows of the same environment."""
    given: dict[str, Any] = {}
    """The launch arguments that were given, without the model; the others are defaults."""
    elapsed_seconds: float | None = None
    """Since training began, to its end or to now, without the time between a stop and its resumption."""
    heartbeat_at: Time | None = None
    eta_seconds: float | None = None
    """Until the last step, at the speed so far; None when it is not known."""
    reward_first: float | None = None
    """Mean training reward of the first step, and of the latest."""
    reward_latest: float | None = None
    eval_reward_first: float | None = None
    """Mean reward on held-out rows before training, and at the latest evaluation."""
    eval_reward_latest: float | None = None
    error_rate: float | None = None
    """Share of the latest step's rollouts that failed."""


class RunDetails(RunInfo):
    modes: list[str]
    error_count: int


class RunChange(Wire):
    """What an owner may change; what is not given stays."""

    name: PlainText | None = Field(default=None, min_length=1, max_length=300)
    is_public: bool | None = None
    archived: bool | None = None
    tags: Annotated[list[Annotated[PlainText, Field(min_length=1, max_length=60)]], Field(max_length=20)] | None = None
    pinned: bool | None = None
    notes: PlainText | None = Field(default=None, max_length=20_000)


class RunEvent(Wire):
    id: int
    created_at: Time
    category: str
    type: str
    message: str
    data: dict[str, Any]


class RunEvents(Wire):
    events: list[RunEvent]


class ScalarPoint(Wire):
    step: int
    value: float
    min: float | None = None
    """With `max`: the extremes of the steps this point stands for, when buckets were asked for."""
    max: float | None = None


class EnvLogLine(Wire):
    id: int
    rollout_id: str | None
    step: int | None
    created_at: Time
    level: str
    message: str
    content: str
    """The message, by the name that published clients print."""
    traceback: str | None


class EnvLogs(Wire):
    logs: list[EnvLogLine]
    next_cursor: str | None = None
    """Pass it as `cursor` for the lines that are there and not in this answer; None when these are all."""
    cursor: str = "0"
    """Of the last line here: pass it later for what came since."""


class Checkpoint(Wire):
    name: str
    step: int | None
    created_at: Time
    bytes: int
    latest: bool
    best: bool


class Checkpoints(Wire):
    checkpoints: list[Checkpoint]


class RunCurves(Wire):
    curves: dict[str, list[float]]
    """The mean training reward of each run that has one, in at most 32 means of neighbouring steps."""


class LogRow(Wire):
    id: int
    """Grows within one process; for files it is the byte at which the line begins."""
    created_at: Time | None
    level: str
    process: str
    message: str
    approximate: bool = False
    """The line has no time of its own; `created_at` is that of the last one before it that has, or of the start."""


class LogPage(Wire):
    lines: list[LogRow]
    next_cursor: str
    """Pass it as `after` to go on, also at the end, to follow."""
    more: bool
    """Whether more lines are there now."""


class GpuSample(Wire):
    name: str
    percent: float
    memory_bytes: int
    memory_total: int
    watts: float | None = None
    celsius: float | None = None


class SystemPoint(Wire):
    time: Time
    cpu_percent: float
    """100 is one core."""
    memory_bytes: int
    processes: int
    gpu: list[GpuSample] = Field(default_factory=list)


class SystemNow(SystemPoint):
    cores: int
    memory_total: int
    load: float


class SystemSeries(Wire):
    points: list[SystemPoint]
    now: SystemNow | None
    """The latest sample; None when there is none."""


class LaunchedArg(Wire):
    name: str
    label: str
    value: Any
    default: Any
    given: bool
    """Whether the launch named it; the rest are defaults."""


class RunConfig(Wire):
    type: str
    args: list[LaunchedArg]
    paths: dict[str, str]
    parent: dict[str, Any]
    settings: dict[str, Any] | None
    """Every setting of the trainer, as resolved; None until it has begun."""


class DownloadPending(Wire):
    status: OneOffStatus
    status_reason: str
