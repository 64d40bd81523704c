"""Turns rows into examples with the `dataset_preprocess` of an environment in another process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeAlias

from benchmax.envs.datasets.load import DatasetReport, ExampleSet, RowRecorder
from benchmax.envs.datasets.rows import Complaint, Row, too_large
from benchmax.envs.example_id import json_fault
from benchmax.envs.remote.wire import FRAME_BYTES
from benchmax.envs.types import Example
from benchmax.errors import DatasetError

BATCH_ROWS = 200
BATCH_BYTES = FRAME_BYTES // 4
"""Size of the rows of a batch, as JSON; the examples that return may be several times as large."""

Outcome: TypeAlias = "tuple[Example | None, list[tuple[Any, ...]]]"
"""An example, if there is one, and the fields of each `Complaint`."""
Convert = Callable[[list[Any]], Awaitable[list[Outcome]]]


async def preprocess(convert: Convert, rows: Iterable[Row], report: DatasetReport) -> ExampleSet:
    """What `load_examples` does, where `convert` turns a batch of rows into outcomes."""
    examples: list[Example] = []
    recorder = RowRecorder(report)
    for batch in _batches(rows):
        outcomes = iter(await convert([row.data for row, refused in batch if refused is None]))
        for row, refused in batch:
            example, fields = next(outcomes) if refused is None else (None, [refused])
            recorder.add(row, example, (Complaint(*each) for each in fields))
            if example is not None:
                examples.append(example)
    report.raise_if_bad()
    return ExampleSet(examples, report)


def _batches(rows: Iterable[Row]) -> Iterator[list[tuple[Row, Complaint | None]]]:
    """Rows that are sent together; those that cannot be sent have the reason beside them."""
    batch: list[tuple[Row, Complaint | None]] = []
    size = 0
    for row in rows:
        refused, bytes_ = _measured(row)
        if len(batch) == BATCH_ROWS or size + bytes_ > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((row, refused))
        size += bytes_
    if batch:
        yield batch


def _measured(row: Row) -> tuple[Complaint | None, int]:
    """Why a row cannot be sent, or None, and its size in bytes."""
    if row.fault is not None:
        return row.fault, 0
    if fault := json_fault(row.data):
        return Complaint(fault.path, fault.reason, fault.fix), 0
    size = len(json.dumps(row.data))
    return (too_large(size), 0) if size > BATCH_BYTES else (None, size)


def batch_outcomes(rows: list[Any], load: Callable[[Any], ExampleSet]) -> Iterator[Outcome]:
    """In the environment's process: convert each row by itself, so that its complaints are known to be its own."""
    for row in rows:
        try:
            loaded = load(row)
            example, issues = loaded.examples[0], loaded.report.issues
        except DatasetError as error:
            example, issues = None, error.issues
        yield example, [(each.column, each.reason, each.fix, each.severity, each.excerpt) for each in issues]
