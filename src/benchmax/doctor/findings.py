"""Findings, each with its evidence and its fix, and the diagnosis that collects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from benchmax.doctor.interpreter_watch import InterpreterHeld
from benchmax.envs.datasets.rows import one_line
from benchmax.errors import plural

Severity: TypeAlias = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
State: TypeAlias = Literal["skipped", "passed", "info", "warning", "error"]
"""How a check went, the best first."""
MARKS: dict[str, str] = {"error": "✗", "warning": "!", "info": "i", "passed": "✓", "skipped": "-"}

EVIDENCE_CHARS = 1_000
HOLDS = "holds-interpreter"
"""The check that is made by watching the doctor's own process."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    severity: Severity
    title: str
    evidence: str
    """What was observed: the text that was scored, and the numbers."""
    fix: str
    check: str = ""
    """The id of the check that found it."""
    code: str = ""
    """Python to paste and adapt, where that is the fix."""

    def __str__(self) -> str:
        return f"{MARKS[self.severity]} {self.text()}"

    def text(self) -> str:
        """Three lines and the code, safe for a terminal: text of models, tools and rows is escaped."""
        head = one_line(f"{self.check}: {self.title}")
        lines = [head, f"    seen: {one_line(self.evidence, EVIDENCE_CHARS)}", f"    fix:  {one_line(self.fix)}"]
        return "\n".join([*lines, *(f"          {one_line(line)}" for line in self.code.splitlines())])


error = partial(Finding, "error")
"""The environment must not be trained on like this."""
warning = partial(Finding, "warning")
"""Training would run, and may disappoint."""
info = partial(Finding, "info")
"""Worth knowing."""


@dataclass(frozen=True, slots=True)
class CheckLine:
    """How one check went."""

    id: str
    title: str
    state: State
    note: str = ""
    """Why it was skipped."""


@dataclass(frozen=True, slots=True)
class ComponentStat:
    """One reward component over all probes."""

    name: str
    mean: float
    std: float
    low: float
    high: float
    by_probe: dict[str, float] = field(default_factory=dict)
    """The mean for each kind of answer."""


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """One answer the doctor tried, and what it earned."""

    probe: str
    question: str
    gold: str
    answer: str
    rewards: dict[str, float]
    reward: float | None
    note: str = ""
    """Why it is unscored, if it is."""


@dataclass(slots=True)
class Diagnosis:
    """Everything the doctor found. True when there is no error."""

    env: str
    findings: list[Finding] = field(default_factory=list)
    checks: list[CheckLine] = field(default_factory=list)
    components: list[ComponentStat] = field(default_factory=list)
    answers: list[ScoredAnswer] = field(default_factory=list)
    rows: int = 0
    examples: int = 0
    """Examples that were played."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "warning"]

    @property
    def passed(self) -> list[str]:
        """Ids of the checks that found neither error nor warning."""
        return [line.id for line in self.checks if line.state in ("passed", "info")]

    @property
    def failed(self) -> list[str]:
        """Ids of the checks that found an error."""
        return [line.id for line in self.checks if line.state == "error"]

    @property
    def skipped(self) -> list[str]:
        return [line.id for line in self.checks if line.state == "skipped"]

    def find(self, check: str) -> list[Finding]:
        """The findings of one check."""
        return [finding for finding in self.findings if finding.check == check]

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "ok": self.ok, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Diagnosis:
        return cls(
            raw["env"],
            findings=[Finding(**each) for each in raw["findings"]],
            checks=[CheckLine(**each) for each in raw["checks"]],
            components=[ComponentStat(**each) for each in raw["components"]],
            answers=[ScoredAnswer(**each) for each in raw["answers"]],
            **{name: raw[name] for name in ("rows", "examples", "seconds")},
        )

    def summary(self) -> str:
        ran = len(self.checks) - len(self.skipped)
        verdict = "no errors" if self.ok else plural(len(self.errors), "error")
        return (
            f"{self.env}: {verdict}, {plural(len(self.warnings), 'warning')}; {ran} checks "
            f"on {plural(self.examples, 'example')} of {plural(self.rows, 'row')} in {self.seconds:.1f} s"
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self.summary()])


def held_interpreter(env: str, held: InterpreterHeld) -> Diagnosis:
    """The diagnosis of an environment whose process had to be ended."""
    found = error(
        "The environment held the interpreter and was ended.",
        f"{held.where} let nothing else run for {held.seconds:.0f} s",
        "Look for a regular expression with nested repetition there, such as (\\w+\\s?)*, or a call into C that waits; "
        "bound the text it sees, or rewrite it.",
        check=HOLDS,
    )
    return Diagnosis(env, [found], [CheckLine(HOLDS, "no hook holds the interpreter", "error")])


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
