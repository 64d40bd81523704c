"""Environments and the doctor's reports on them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from benchmax.platform.wire.base import Time, Wire

OneOffStatus = Literal["queued", "active", "complete", "failed"]


class EnvironmentInfo(Wire):
    id: str
    name: str
    kind: Literal["builtin", "plugin", "bundle"]
    """Part of benchmax, of a package that is installed beside it, or an upload. The first two have names."""
    path: str
    """A dotted path for one with a name, the folder of the upload for a bundle."""
    description: str
    digest: str
    python_version: str
    tools: list[str] | None = None
    """Known of a built-in, and when the doctor has looked at it."""
    created_at: Time | None
    brings_rows: bool = False
    """Whether it can be launched without a dataset."""
    own_rows: int | None = None
    """How many rows it brings."""
    datasets: list[str] = []
    """Names of the rows it makes, such as levels of difficulty; the first is what it takes when none is given."""


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
    status: OneOffStatus
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
