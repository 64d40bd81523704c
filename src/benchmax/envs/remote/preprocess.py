"""Rows into examples, with the environment's `dataset_preprocess` on the other side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from benchmax.envs.datasets import DatasetReport, ExampleSet
from benchmax.envs.example_id import json_fault
from benchmax.envs.readers import Source, read_rows, source_name
from benchmax.envs.rows import Finding, Row
from benchmax.envs.types import Example

BATCH_ROWS = 200

Outcome: TypeAlias = "tuple[Example | None, list[tuple[Any, ...]]]"
"""An example, if there is one, and the fields of each `Finding`."""
Convert = Callable[[list[Any]], Awaitable[list[Outcome]]]


async def preprocess(convert: Convert, source: Source, lenient: bool, min_rows: int) -> ExampleSet:
    """What `load_examples` does, where `convert` turns a batch of rows into outcomes."""
    report = DatasetReport(source_name(source), lenient, min_rows)
    examples: list[Example] = []
    seen: set[str] = set()
    rows = read_rows(source)
    while batch := list(islice(rows, BATCH_ROWS)):
        refused = {index: finding for index, row in enumerate(batch) if (finding := _unsendable(row)) is not None}
        outcomes = iter(await convert([row.data for index, row in enumerate(batch) if index not in refused]))
        for index, row in enumerate(batch):
            example, fields = (None, [refused[index]]) if index in refused else next(outcomes)
            _note(report, row, example, [Finding(*each) for each in fields])
            if example is not None:
                _note_repeated(report, row, example["id"], seen)
                examples.append(example)
    report.raise_if_bad()
    return ExampleSet(examples, report)


def _unsendable(row: Row) -> Finding | None:
    if row.fault is not None:
        return row.fault
    fault = json_fault(row.data)
    return Finding(fault.path, fault.reason, fault.fix) if fault else None


def _note(report: DatasetReport, row: Row, example: Example | None, findings: list[Finding]) -> None:
    report.rows += 1
    report.kept += example is not None
    report.bad_rows += example is None
    for finding in findings:
        report.add(row.issue(finding))


def _note_repeated(report: DatasetReport, row: Row, example_id: str, seen: set[str]) -> None:
    if example_id in seen:
        report.duplicates += 1
        reason = "the row repeats an earlier one (same prompt and task)"
        report.add(row.issue(Finding(None, reason, "remove it, unless it should count twice", "warning")))
    seen.add(example_id)


def batch_outcomes(rows: list[Any], load: Callable[[Any], ExampleSet]) -> Iterator[Outcome]:
    """The other side: each row on its own, so that its findings are known to be its own."""
    from benchmax.errors import DatasetError

    for row in rows:
        try:
            loaded = load(row)
            example, issues = loaded.examples[0], loaded.report.issues
        except DatasetError as error:
            example, issues = None, error.issues
        yield example, [(each.column, each.reason, each.fix, each.severity, each.excerpt) for each in issues]
