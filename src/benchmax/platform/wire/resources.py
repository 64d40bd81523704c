"""The wire, third part: environments, datasets, users, and what a run's page shows besides its charts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from benchmax.platform.wire.runs import JsonObject, PlainText, Time, Wire

ErrandStatus = Literal["queued", "active", "complete", "failed"]


# Environments


class EnvironmentInfo(Wire):
    id: str
    name: str
    kind: Literal["builtin", "bundle"]
    path: str
    """A dotted path for a built-in, the folder of the upload for a bundle."""
    description: str
    digest: str
    python_version: str
    tools: list[str] | None = None
    """Known when the doctor has looked at it."""
    created_at: Time | None
    brings_rows: bool = False
    """Whether it can be launched without a dataset."""
    own_rows: int | None = None
    """How many rows it brings."""


class EnvironmentList(Wire):
    environments: list[EnvironmentInfo]


class SourceFile(Wire):
    path: str
    text: str
    truncated: bool = False


class EnvironmentDetails(EnvironmentInfo):
    files: list[SourceFile]
    manifest: dict[str, Any]
    imports: list[str]
    """Modules the bundle would import when it is opened."""
    suspicious: list[str]
    """Names in it that run commands or code by themselves."""
    problems: list[str]
    """Why it would be refused; empty when it would not."""


class DoctorRequest(Wire):
    dataset_path: str | None = Field(default=None, min_length=1, max_length=500)
    """Rows to examine it on; a built-in may have its own."""
    model: str | None = Field(default=None, min_length=1, max_length=200)
    """A model of the platform's machine that tries it, to say whether it can learn from it."""


class DoctorStarted(Wire):
    report_id: str


class DoctorFinding(Wire):
    check: str
    severity: Literal["error", "warning", "info"]
    title: str
    message: str
    """The title and what to do about it."""
    evidence: str
    fix: str
    code: str = ""
    """Python to paste and adapt, where that is the fix."""


class DoctorCheck(Wire):
    id: str
    title: str
    state: str
    note: str = ""


class DoctorComponent(Wire):
    name: str
    mean: float
    std: float
    low: float
    high: float
    by_probe: dict[str, float]


class DoctorAnswer(Wire):
    probe: str
    question: str
    gold: str
    answer: str
    rewards: dict[str, float]
    reward: float | None
    note: str = ""


class DoctorSignal(Wire):
    """Whether a model can learn from an environment, by its first samples."""

    groups: int
    samples: int
    reward: float | None
    best: float | None
    pass_at_k: float
    spread: float
    unscored: float
    cut_off: float
    in_form: float | None
    first_calls: float | None
    gold: float | None
    floor: float
    chance: float | None = None
    lazy: dict[str, float]
    ready: bool = False
    learns: bool
    forecast: str
    advice: str


class DoctorReport(Wire):
    id: str
    environment: str
    status: ErrandStatus
    status_reason: str
    created_at: Time
    ended_at: Time | None
    ok: bool | None = None
    """None until it is complete."""
    rows: int = 0
    examples: int = 0
    seconds: float = 0.0
    tools: list[str] | None = None
    findings: list[DoctorFinding] = Field(default_factory=list)
    checks: list[DoctorCheck] = Field(default_factory=list)
    components: list[DoctorComponent] = Field(default_factory=list)
    answers: list[DoctorAnswer] = Field(default_factory=list)
    model: str | None = None
    signal: DoctorSignal | None = None
    """What the model's first samples show, where one was asked to try."""


class DoctorReports(Wire):
    reports: list[DoctorReport]


class RunDoctor(Wire):
    """What the doctor says of the environment a run was launched with."""

    environment: str | None
    """Its id, to examine it with; None when it is no longer stored, or the run has none."""
    dataset_path: str | None
    """The run's training rows."""
    report: DoctorReport | None
    """The newest on these rows or, without one, on any; None when it was not examined."""
    same_rows: bool
    """Whether that was on the rows of this run."""


# Datasets


class DatasetInfo(Wire):
    path: str
    bytes: int
    rows: int | None
    sha256: str
    updated_at: Time


class DatasetList(Wire):
    datasets: list[DatasetInfo]


class RowRequest(Wire):
    path: str = Field(min_length=1, max_length=500)
    row: JsonObject
    create: bool = False
    """Make a new dataset of this name, with this one row."""


class RowAdded(Wire):
    path: str
    """Where the new version is; a file that was not JSON lines gets a new name."""
    rows: int


# Runs


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


class ForkRequest(Wire):
    checkpoint: str = Field(default="best", max_length=40, pattern=r"^(best|latest|step-\d{1,9})$")
    args: JsonObject = Field(default={})
    """Launch arguments to change."""
    name: PlainText | None = Field(default=None, min_length=1, max_length=300)


class RescoreRequest(Wire):
    environment: str | None = Field(default=None, min_length=1, max_length=80)
    """An id of GET /v1/environments; the run's own when not given."""
    name: PlainText = Field(default="", max_length=200)


SFT_FORMAT = "benchmax-sft-v1"


class SftDataset(Wire):
    format: Literal["jsonl", "json", "csv", "tsv", "parquet", "benchmax-sft-v1"] = "jsonl"
    """The last is what published clients call JSON lines of chats."""
    path: str = Field(min_length=1, max_length=500)
    """Of a file, or of a folder with train.jsonl and eval.jsonl."""
    digest: str | None = Field(default=None, max_length=80)
    rows: int | None = Field(default=None, ge=0)


class SftEval(Wire):
    rows: int = Field(default=0, ge=0, le=1_000_000)
    """The last so many rows are not learned from; the loss on them is."""
    digest: str | None = Field(default=None, max_length=80)


class SftRequest(Wire):
    name: PlainText | None = Field(default=None, max_length=300)
    dataset: SftDataset
    args: JsonObject = Field(default={})
    model: str | None = Field(default=None, min_length=1, max_length=200)
    eval: SftEval | None = None


class DownloadPending(Wire):
    status: ErrandStatus
    status_reason: str


# Comparison


class ComparedComponent(Wire):
    name: str
    ours: float
    other: float
    delta: float
    ci_low: float | None
    """None when one example tells nothing of the others."""
    ci_high: float | None
    n: int
    label: Literal["outperformed", "comparison leads", "closing in", "no clear difference"]


class ComparisonSummary(Wire):
    n: int
    """Examples that both have a score for."""
    components: list[ComparedComponent]
    """The whole reward first, under the name `reward`; then each component that every rollout has."""


# Users


class UserRequest(Wire):
    name: Annotated[str, Field(min_length=3, max_length=320, pattern=r"^[^\s\x00]+$")]
    """The address to sign in with."""
    password: str = Field(min_length=10, max_length=1000)
    role: Literal["admin", "member"] = "member"


class UserInfo(Wire):
    id: str
    name: str
    role: str
    has_password: bool
    created_at: Time
    runs: int


class UserList(Wire):
    users: list[UserInfo]
