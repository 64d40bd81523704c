"""Rows into examples, with the environment's `dataset_preprocess` on the other side."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeAlias

from benchmax.envs.datasets.load import REPEATED, DatasetReport, ExampleSet
from benchmax.envs.datasets.rows import Finding, Row, too_large
from benchmax.envs.example_id import json_fault
from benchmax.envs.remote.wire import FRAME_BYTES
from benchmax.envs.types import Example

BATCH_ROWS = 200
BATCH_BYTES = FRAME_BYTES // 4
"""Of the rows of a batch, as JSON; the examples that come back may be several times as large."""

Outcome: TypeAlias = "tuple[Example | None, list[tuple[Any, ...]]]"
"""An example, if there is one, and the fields of each `Finding`."""
Convert = Callable[[list[Any]], Awaitable[list[Outcome]]]


async def preprocess(convert: Convert, rows: Iterable[Row], report: DatasetReport) -> ExampleSet:
    """What `load_examples` does, where `convert` turns a batch of rows into outcomes."""
    examples: list[Example] = []
    seen: set[str] = set()
    for batch in _batches(rows):
        outcomes = iter(await convert([row.data for row, refused in batch if refused is None]))
        for row, refused in batch:
            example, fields = next(outcomes) if refused is None else (None, [refused])
            _note(report, row, example, [Finding(*each) for each in fields])
            if example is not None:
                _note_repeated(report, row, example["id"], seen)
                examples.append(example)
    report.raise_if_bad()
    return ExampleSet(examples, report)


def _batches(rows: Iterable[Row]) -> Iterator[list[tuple[Row, Finding | None]]]:
    """Rows that cross together; those that cannot have the reason beside them."""
    batch: list[tuple[Row, Finding | None]] = []
    size = 0
    for row in rows:
        refused, weight = _weighed(row)
        if len(batch) == BATCH_ROWS or size + weight > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((row, refused))
        size += weight
    if batch:
        yield batch


def _weighed(row: Row) -> tuple[Finding | None, int]:
    """Why a row cannot cross, if it cannot, and its bytes if it can."""
    if row.fault is not None:
        return row.fault, 0
    if fault := json_fault(row.data):
        return Finding(fault.path, fault.reason, fault.fix), 0
    size = len(json.dumps(row.data))
    return (too_large(size), 0) if size > BATCH_BYTES else (None, size)


def _note(report: DatasetReport, row: Row, example: Example | None, findings: list[Finding]) -> None:
    report.rows += 1
    report.kept += example is not None
    report.bad_rows += example is None
    for finding in findings:
        report.add(row.issue(finding))


def _note_repeated(report: DatasetReport, row: Row, example_id: str, seen: set[str]) -> None:
    if example_id in seen:
        report.duplicates += 1
        report.add(row.issue(REPEATED))
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
