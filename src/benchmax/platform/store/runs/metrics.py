"""Metrics: `(run, split, name) → step → value`. Writing a value again replaces it, so ingest may repeat itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.orm import Session

from benchmax.platform.store.clean_text import clean
from benchmax.platform.store.statements import upsert
from benchmax.platform.store.tables import MetricName, MetricValue

_NAME_CHARS = 300

# Built once: building a statement costs several times what running it does.
_OF_SPLIT = (
    select(MetricName.id, MetricName.name)
    .where(MetricName.run_id == bindparam("run_id"), MetricName.split == bindparam("split"))
    .order_by(MetricName.name)
)
_OF_METRIC = (MetricValue.run_id == bindparam("run_id"), MetricValue.metric_id == bindparam("metric_id"))
_VALUES = select(MetricValue.step, MetricValue.value).where(*_OF_METRIC).order_by(MetricValue.step)
_SPREAD = (func.avg(MetricValue.value), func.min(MetricValue.value), func.max(MetricValue.value))
_BUCKETS = (
    select(func.max(MetricValue.step), *_SPREAD)
    .where(*_OF_METRIC)
    .group_by((MetricValue.step - bindparam("first")) // bindparam("width"))
    .order_by(func.max(MetricValue.step))
)
_SPAN = select(func.min(MetricValue.step), func.max(MetricValue.step)).where(*_OF_METRIC)
_SPLITS = select(MetricName.split).where(MetricName.run_id == bindparam("run_id")).distinct().order_by(MetricName.split)


class MetricLine(NamedTuple):
    """One line of metrics.jsonl."""

    step: int
    split: str
    time: float
    values: Mapping[str, float]


def record(db: Session, run_id: str, lines: Iterable[MetricLine]) -> int:
    """Write lines of metrics.jsonl; returns the number of values."""
    lines = [line._replace(split=clean(line.split, 40)) for line in lines]
    ids = _metric_ids(db, run_id, {(line.split, clean(name, _NAME_CHARS)) for line in lines for name in line.values})
    # The last value of a step wins, and one statement may not touch a row twice.
    rows = {
        (ids[line.split, clean(name, _NAME_CHARS)], line.step): (value, line.time)
        for line in lines
        for name, value in line.values.items()
    }
    values = [
        {"run_id": run_id, "metric_id": metric_id, "step": step, "value": value, "time": at}
        for (metric_id, step), (value, at) in rows.items()
    ]
    upsert(db, MetricValue, values, key=("run_id", "metric_id", "step"))
    return len(values)


def encoded(db: Session, run_id: str, split: str, buckets: int | None = None) -> bytes:
    """`{name: [{step, value}]}` of one split as JSON, steps in order; `{}` for a split there is not.

    Written directly: a long run has half a million values.

    With `buckets`, no metric has more values than that: neighbours become one with the step of the last of them, their
    mean, and their extremes, `{step, value, min, max}`, to nine digits.
    """
    parts = []
    for metric_id, name in db.execute(_OF_SPLIT, {"run_id": run_id, "split": split}).all():
        of = {"run_id": run_id, "metric_id": metric_id}
        if buckets is None:
            rows = [f'{{"step":{step},"value":{value!r}}}' for step, value in db.execute(_VALUES, of)]
        else:
            rows = [
                f'{{"step":{step},"value":{mean:.9g},"min":{least:.9g},"max":{most:.9g}}}'
                for step, mean, least, most in _in_buckets(db, of, buckets)
            ]
        if rows:
            parts.append(f"{json.dumps(name)}:[{','.join(rows)}]")
    return f"{{{','.join(parts)}}}".encode()


def _in_buckets(db: Session, of: Mapping[str, Any], buckets: int) -> Sequence[Any]:
    """`(last step, mean, least, most)` of each bucket."""
    span: Sequence[Any] = db.execute(_SPAN, of).one()
    first, last = span
    if first is None:
        return []
    width = -(-(last - first + 1) // buckets)
    return db.execute(_BUCKETS, {**of, "first": first, "width": width}).all()


def curves(db: Session, run_ids: Sequence[str], name: str, buckets: int) -> dict[str, list[float]]:
    """One training metric of many runs, each as at most `buckets` means; runs without values are left out."""
    query = select(MetricName.run_id, MetricName.id).where(
        MetricName.run_id.in_(list(run_ids)), MetricName.split == "train", MetricName.name == name
    )
    found = {}
    for run_id, metric_id in db.execute(query).all():
        rows = _in_buckets(db, {"run_id": run_id, "metric_id": metric_id}, buckets)
        found[run_id] = [float(f"{mean:.4g}") for _, mean, _, _ in rows]
    return {run_id: values for run_id, values in found.items() if values}


def splits(db: Session, run_id: str) -> list[str]:
    """Splits that have values."""
    return list(db.scalars(_SPLITS, {"run_id": run_id}))


def drop_from(db: Session, run_id: str, split: str, step: int) -> None:
    """Delete values of `split` at `step` and later: the trainer returned to a checkpoint."""
    ids = select(MetricName.id).where(MetricName.run_id == run_id, MetricName.split == split).scalar_subquery()
    db.execute(
        delete(MetricValue).where(
            MetricValue.run_id == run_id, MetricValue.metric_id.in_(ids), MetricValue.step >= step
        )
    )


def _metric_ids(db: Session, run_id: str, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    ids = _known_metrics(db, run_id)
    missing = sorted(wanted - ids.keys())
    if missing:
        rows = [{"run_id": run_id, "split": split, "name": name} for split, name in missing]
        upsert(db, MetricName, rows, key=("run_id", "split", "name"))
        ids = _known_metrics(db, run_id)
    return ids


def _known_metrics(db: Session, run_id: str) -> dict[tuple[str, str], int]:
    query = select(MetricName.split, MetricName.name, MetricName.id).where(MetricName.run_id == run_id)
    return {(split, name): metric_id for split, name, metric_id in db.execute(query)}
