"""Turns rows into examples, and reports every row that cannot be used.

    source ──read_rows──▶ Row ──rules──▶ dataset_preprocess ──checks──▶ Example
                           └──────────── RowIssue ────────────┴──▶ DatasetReport

All bad rows are found; three of a kind are listed, the rest are counted. Strict by default: a dataset with an unusable
row is refused as a whole, after it was read to the end. `lenient` keeps the good rows.
"""

from __future__ import annotations

import inspect
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.readers import Source, read_rows, source_name
from benchmax.envs.datasets.rows import (
    Complaint,
    Row,
    RowFault,
    RowIssue,
    check_columns,
    check_messages,
    check_shape,
    copy_row,
    json_type,
    one_line,
)
from benchmax.envs.example_id import json_fault
from benchmax.envs.legacy import example_from
from benchmax.envs.required_columns import MissingColumn
from benchmax.envs.types import Example
from benchmax.errors import DatasetError, EnvDefinitionError
from benchmax.files.atomic import replacing

_OF_A_KIND = 3
"""Issues of one column and reason that are listed; the others are counted."""
LENIENT = "Fix them, or keep only the usable rows with --lenient (in Python: lenient=True)."
REPEATED = Complaint(
    None, "the row repeats an earlier one (same prompt and task)", "remove it, unless it should count twice", "warning"
)


@dataclass(slots=True)
class DatasetReport:
    """What was found in a dataset."""

    source: str = "rows"
    lenient: bool = False
    min_rows: int = 0
    rows: int = 0
    """Rows read."""
    kept: int = 0
    """Rows that became examples."""
    bad_rows: int = 0
    """Rows with at least one error."""
    errors: int = 0
    warnings: int = 0
    duplicates: int = 0
    """Kept rows with the id of an earlier one; these are warnings too."""
    advice: str = LENIENT
    """What to do about unusable rows."""
    _shown: dict[str, list[RowIssue]] = field(default_factory=lambda: {"error": [], "warning": []})

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used."""
        return self._problem() is None

    @property
    def issues(self) -> list[RowIssue]:
        """The issues kept for showing: errors first, at most `limits.ROW_ISSUES_SHOWN`."""
        return (self._shown["error"] + self._shown["warning"])[: limits.ROW_ISSUES_SHOWN]

    def add(self, issue: RowIssue) -> None:
        if issue.severity == "error":
            self.errors += 1
        else:
            self.warnings += 1
        shown = self._shown[issue.severity]
        if len(shown) < limits.ROW_ISSUES_SHOWN:
            shown.append(issue)

    def raise_if_bad(self) -> None:
        """Raise DatasetError, which lists the issues, if the dataset cannot be used."""
        if problem := self._problem():
            raise DatasetError(problem, self.issues)

    def _problem(self) -> str | None:
        if not self.rows:
            return f"{self.source} has no rows. Add rows with a prompt (or messages) and what the reward needs."
        if self.errors and not self.lenient:
            count = f"{self.bad_rows:,} of {self.rows:,} rows of {self.source}"
            return f"{count} cannot be used:\n{self._listing('error')}\n{self.advice}"
        if not self.kept:
            return f"No row of {self.source} can be used:\n{self._listing('error')}\nFix the rows."
        if self.kept < self.min_rows:
            return (
                f"{self.source} has {self.kept:,} usable rows; at least {self.min_rows:,} are needed. "
                f"Add {self.min_rows - self.kept:,} or more."
            )
        return None

    def _listing(self, *severities: str) -> str:
        shown = list(_first_of_each(issue for issue in self.issues if issue.severity in severities))
        count = {"error": self.errors, "warning": self.warnings}
        more = sum(count[severity] for severity in severities) - len(shown)
        lines = [f"  {issue}" for issue in shown] + ([f"  … and {more:,} more"] if more else [])
        return "\n".join(lines)

    def __str__(self) -> str:
        counts = {
            "rows": self.rows,
            "usable": self.kept,
            "errors": self.errors,
            "warnings": self.warnings,
            "duplicates": self.duplicates,
        }
        table = [self.source] + [f"  {name:<10} {count:>9,}" for name, count in counts.items()]
        return "\n".join(table + [self._listing("error", "warning")] * bool(self.errors or self.warnings))


def _first_of_each(issues: Iterable[RowIssue]) -> Iterator[RowIssue]:
    """A few issues of each kind: a column with a wrong name is wrong in every row."""
    seen: Counter[tuple[Any, ...]] = Counter()
    for issue in issues:
        kind = issue.column, issue.reason, issue.fix
        seen[kind] += 1
        if seen[kind] <= _OF_A_KIND:
            yield issue


@dataclass(slots=True, repr=False)
class ExampleSet(Sequence[Example]):
    """The examples of a dataset, with the report of how they were read."""

    examples: list[Example]
    report: DatasetReport

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: Any) -> Any:
        return self.examples[index]

    def __repr__(self) -> str:
        issues = f"{self.report.errors:,} errors, {self.report.warnings:,} warnings"
        return f"<ExampleSet: {len(self):,} examples from {self.report.source}, {issues}>"


def load_examples(
    source: Source,
    env_class: type[BaseEnv] | None = None,
    *,
    lenient: bool = False,
    limit: int | None = None,
    min_rows: int = 0,
) -> ExampleSet:
    """All examples of `source`, made by `dataset_preprocess`; raises DatasetError for unusable rows."""
    report = DatasetReport(source_name(source), lenient, min_rows)
    examples = list(stream_examples(islice(read_rows(source), limit), env_class, report))
    report.raise_if_bad()
    return ExampleSet(examples, report)


def iter_examples(
    source: Source,
    env_class: type[BaseEnv] | None = None,
    *,
    lenient: bool = False,
    limit: int | None = None,
    min_rows: int = 0,
) -> Iterator[Example]:
    """Like `load_examples`, one at a time in bounded memory; DatasetError is raised after the last example."""
    report = DatasetReport(source_name(source), lenient, min_rows)
    yield from stream_examples(islice(read_rows(source), limit), env_class, report)
    report.raise_if_bad()


def check_dataset(
    source: Source,
    env_class: type[BaseEnv] | None = None,
    *,
    lenient: bool = False,
    limit: int | None = None,
    min_rows: int = 0,
) -> DatasetReport:
    """Read the whole dataset in bounded memory and report on it, without raising."""
    report = DatasetReport(source_name(source), lenient, min_rows)
    for _ in stream_examples(islice(read_rows(source), limit), env_class, report):
        pass
    return report


def overlap(train: Iterable[Example], evaluation: Iterable[Example]) -> int:
    """How many evaluation examples are also trained on."""
    ids = {example["id"] for example in train}
    return sum(example["id"] in ids for example in evaluation)


def write_jsonl(path: str | os.PathLike[str], rows: Iterable[Any]) -> int:
    """Write one JSON object a line, all or nothing; returns the number of rows."""
    path, count = Path(path), 0
    if not path.parent.is_dir():
        raise DatasetError(f"There is no folder {path.parent} to write {path.name} to. Make it first.")
    with replacing(path) as file:
        for count, row in enumerate(rows, 1):
            file.write(f"{jsonl_line(row, count)}\n".encode())
    return count


def jsonl_line(row: Any, number: int = 1) -> str:
    """A row as one line of JSON, without its line end."""
    complaint = check_shape(row)
    if complaint is None and (fault := json_fault(row)):
        complaint = Complaint(fault.path, fault.reason, fault.fix)
    if complaint:
        issue = Row(row, "rows", number).issue(complaint)
        raise DatasetError(f"Cannot write the rows as JSONL:\n  {issue}", [issue])
    return json.dumps(row)


# From a row to an example


def stream_examples(
    rows: Iterable[Row], env_class: type[BaseEnv] | None, report: DatasetReport, *, elsewhere: bool = False
) -> Iterator[Example]:
    """The usable examples; counts and issues go to the report.

    With `elsewhere`, the rows are meant for another machine, and an ImportError of `dataset_preprocess` is raised: it
    may need a package that only that machine has.
    """
    if env_class is not None and not callable(getattr(env_class, "dataset_preprocess", None)):
        raise EnvDefinitionError(
            f"Rows become examples by an environment class, and {env_class!r:.80} is none. Give the class; "
            "load_env_class of benchmax.envs.loading finds one by its name."
        )
    convert = _Conversion(env_class or BaseEnv, elsewhere)
    recorder = RowRecorder(report)
    for row in rows:
        example, complaints = convert(row)
        recorder.add(row, example, complaints)
        if example is not None:
            yield example


class RowRecorder:
    """Adds the outcome of each row to a report, and finds rows that repeat an earlier one."""

    def __init__(self, report: DatasetReport) -> None:
        self._report = report
        # 64-bit hashes instead of ids: a million rows in a tenth of the memory, a false alarm once in 10^7 datasets.
        self._seen: set[int] = set()

    def add(self, row: Row, example: Example | None, complaints: Iterable[Complaint]) -> None:
        report = self._report
        report.rows += 1
        for complaint in complaints:
            report.add(row.issue(complaint))
        if example is None:
            report.bad_rows += 1
            return
        report.kept += 1
        if (key := hash(example["id"])) in self._seen:
            report.duplicates += 1
            report.add(row.issue(REPEATED))
        self._seen.add(key)


class _Conversion:
    """Turns rows into examples with one environment's `dataset_preprocess`."""

    def __init__(self, env_class: type[BaseEnv], elsewhere: bool) -> None:
        self._preprocess = env_class.dataset_preprocess
        self._elsewhere = elsewhere
        # The column rules are those of the default; an override has columns of its own.
        self._default = getattr(self._preprocess, "__func__", None) is BaseEnv.dataset_preprocess.__func__  # type: ignore[attr-defined]

    def __call__(self, row: Row) -> tuple[Example | None, list[Complaint]]:
        """The example, or None if a complaint is an error."""
        complaint = row.fault or check_shape(row.data)
        if complaint:
            return None, [complaint]
        try:
            data = row.data if row.measured else copy_row(row.data)
            complaints = list(check_columns(data)) if self._default else []
            _stop_at_error(complaints)
            example = self._example(data)
            if not self._default:
                complaints += _check_example(example)
                _stop_at_error(complaints)
        except RowFault as fault:
            return None, fault.complaints
        return example, complaints

    def _example(self, data: dict[str, Any]) -> Example:
        columns = list(data)  # before user code can change it
        try:
            result: Any = self._preprocess(data)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("it is async; write it as a plain classmethod")
            return example_from(result)
        except (Exception, SystemExit) as error:
            if self._elsewhere and isinstance(error, ImportError):
                raise
            fault = json_fault(data) if self._default else None
            if fault:
                raise RowFault(Complaint(fault.path, fault.reason, fault.fix)) from None
            raise RowFault(_raised(error, columns)) from error


def _stop_at_error(complaints: list[Complaint]) -> None:
    if complaints and any(complaint.severity == "error" for complaint in complaints):
        raise RowFault(*complaints)


def _raised(error: BaseException, columns: list[Any]) -> Complaint:
    names = ", ".join(one_line(str(column), 40) for column in columns[:20])
    if isinstance(error, MissingColumn):
        wanted = ", ".join(error.expected)
        return Complaint(error.column, f"nothing is there: the row has the columns {names}", f"give it {wanted}")
    try:
        shown = repr(error)
    except Exception:
        shown = type(error).__name__
    reason = f"dataset_preprocess raised {one_line(shown, 200)}: the row has the columns {names or 'none'}"
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    if isinstance(missing, str) and missing not in columns:
        return Complaint(one_line(missing, 40), reason, "add that column, or change dataset_preprocess")
    return Complaint(None, reason, "change dataset_preprocess or the row")


def _check_example(example: Example) -> Iterator[Complaint]:
    """The rules for what an overridden `dataset_preprocess` returns."""
    fix = "return make_example(…) from dataset_preprocess"
    if not isinstance(example["id"], str) or not example["id"]:
        reason = "empty" if example["id"] == "" else f"{json_type(example['id'])}, not text"
        yield Complaint("id", f"the example's id is {reason}", fix)
    yield from check_messages("prompt_messages", example["prompt_messages"])
    for name in ("task", "init_rollout_args"):
        value = example.get(name)
        if value is not None and not isinstance(value, dict):
            yield Complaint(name, f"the example's {name} is {json_type(value)}, not a dict", fix)
    content = {"prompt_messages": example["prompt_messages"], "task": example.get("task")}
    if fault := json_fault(content):
        yield Complaint(fault.path, fault.reason, fault.fix)
