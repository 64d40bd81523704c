"""Metric series: `(run, mode, name) → step → value`. Writing a point again replaces it, so ingest may repeat itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import Base, Point, Series
from benchmax.platform.store.text import clean

_NAME_CHARS = 300

# Built once: building a statement costs several times what running it does.
_OF_MODE = (
    select(Series.id, Series.name)
    .where(Series.run_id == bindparam("run_id"), Series.mode == bindparam("mode"))
    .order_by(Series.name)
)
_POINTS = (
    select(Point.step, Point.value)
    .where(Point.run_id == bindparam("run_id"), Point.series_id == bindparam("series_id"))
    .order_by(Point.step)
)
_BUCKETS = (
    select(func.max(Point.step), func.avg(Point.value), func.min(Point.value), func.max(Point.value))
    .where(Point.run_id == bindparam("run_id"), Point.series_id == bindparam("series_id"))
    .group_by((Point.step - bindparam("first")) // bindparam("width"))
    .order_by(func.max(Point.step))
)
_SPAN = select(func.min(Point.step), func.max(Point.step)).where(
    Point.run_id == bindparam("run_id"), Point.series_id == bindparam("series_id")
)
_MODES = select(Series.mode).where(Series.run_id == bindparam("run_id")).distinct().order_by(Series.mode)


class MetricLine(NamedTuple):
    """One line of metrics.jsonl."""

    step: int
    mode: str
    time: float
    values: Mapping[str, float]


def record(session: Session, run_id: str, lines: Iterable[MetricLine]) -> int:
    """Write lines of metrics.jsonl; gives the number of points."""
    lines = [line._replace(mode=clean(line.mode, 40)) for line in lines]
    series = _series_ids(
        session, run_id, {(line.mode, clean(name, _NAME_CHARS)) for line in lines for name in line.values}
    )
    # The last value of a step wins, and one statement may not touch a row twice.
    rows = {
        (series[line.mode, clean(name, _NAME_CHARS)], line.step): (value, line.time)
        for line in lines
        for name, value in line.values.items()
    }
    points = [
        {"run_id": run_id, "series_id": series_id, "step": step, "value": value, "time": at}
        for (series_id, step), (value, at) in rows.items()
    ]
    write_all(session, Point, points, key=("run_id", "series_id", "step"))
    return len(points)


def scalars(
    session: Session, run_id: str, mode: str, names: Iterable[str] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """`{name: [{step, value}]}` of one mode, steps in order; `{}` for a mode there is not."""
    query = select(Series.id, Series.name).where(Series.run_id == run_id, Series.mode == mode).order_by(Series.name)
    if names is not None:
        query = query.where(Series.name.in_(list(names)))
    series = {row.id: row.name for row in session.execute(query)}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in series.values()}
    points = select(Point.series_id, Point.step, Point.value).where(Point.run_id == run_id, Point.series_id.in_(series))
    for series_id, step, value in session.execute(points.order_by(Point.series_id, Point.step)):
        found[series[series_id]].append({"step": step, "value": value})
    return {name: values for name, values in found.items() if values}


def encoded(session: Session, run_id: str, mode: str, buckets: int | None = None) -> bytes:
    """`scalars` as JSON, written directly: a long run has half a million points.

    With `buckets`, no series has more points than that: neighbours become one with the step of the last of them, their
    mean, and their extremes, `{step, value, min, max}`, to nine digits.
    """
    series = session.execute(_OF_MODE, {"run_id": run_id, "mode": mode}).all()
    parts = []
    for series_id, name in series:
        of = {"run_id": run_id, "series_id": series_id}
        rows = _whole(session, of) if buckets is None else _bucketed(session, of, buckets)
        if rows:
            parts.append(f"{json.dumps(name)}:[{','.join(rows)}]")
    return f"{{{','.join(parts)}}}".encode()


def _whole(session: Session, of: Mapping[str, Any]) -> list[str]:
    return [f'{{"step":{step},"value":{value!r}}}' for step, value in session.execute(_POINTS, of)]


def _bucketed(session: Session, of: Mapping[str, Any], buckets: int) -> list[str]:
    return [
        f'{{"step":{step},"value":{mean:.9g},"min":{least:.9g},"max":{most:.9g}}}'
        for step, mean, least, most in _in_buckets(session, of, buckets)
    ]


def _in_buckets(session: Session, of: Mapping[str, Any], buckets: int) -> Sequence[Any]:
    """`(last step, mean, least, most)` of each bucket."""
    span: Sequence[Any] = session.execute(_SPAN, of).one()
    first, last = span
    if first is None:
        return []
    width = -(-(last - first + 1) // buckets)
    return session.execute(_BUCKETS, {**of, "first": first, "width": width}).all()


def curves(session: Session, run_ids: Sequence[str], name: str, buckets: int) -> dict[str, list[float]]:
    """One training series of many runs, each as at most so many means; runs without points are left out."""
    query = select(Series.run_id, Series.id).where(
        Series.run_id.in_(list(run_ids)), Series.mode == "train", Series.name == name
    )
    found = {}
    for run_id, series_id in session.execute(query).all():
        rows = _in_buckets(session, {"run_id": run_id, "series_id": series_id}, buckets)
        found[run_id] = [float(f"{mean:.4g}") for _, mean, _, _ in rows]
    return {run_id: values for run_id, values in found.items() if values}


def modes(session: Session, run_id: str) -> list[str]:
    """Modes that have points."""
    return list(session.scalars(_MODES, {"run_id": run_id}))


def drop_from(session: Session, run_id: str, mode: str, step: int) -> None:
    """Forget points of `mode` at `step` and later: the trainer went back to a checkpoint."""
    ids = select(Series.id).where(Series.run_id == run_id, Series.mode == mode).scalar_subquery()
    session.execute(delete(Point).where(Point.run_id == run_id, Point.series_id.in_(ids), Point.step >= step))


def write_all(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
    """Insert rows; those whose key is there already are replaced, or left alone when the key is all there is."""
    if not rows:
        return
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    replaced = {name: statement.excluded[name] for name in rows[0] if name not in key}
    if replaced:
        statement = statement.on_conflict_do_update(index_elements=key, set_=replaced)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=key)
    # Through the connection: the driver's executemany, several times faster than one long VALUES.
    session.flush()
    session.connection().execute(statement, rows)


def _series_ids(session: Session, run_id: str, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    ids = _known_series(session, run_id)
    missing = sorted(wanted - ids.keys())
    if missing:
        rows = [{"run_id": run_id, "mode": mode, "name": name} for mode, name in missing]
        write_all(session, Series, rows, key=("run_id", "mode", "name"))
        ids = _known_series(session, run_id)
    return ids


def _known_series(session: Session, run_id: str) -> dict[tuple[str, str], int]:
    query = select(Series.mode, Series.name, Series.id).where(Series.run_id == run_id)
    return {(mode, name): series_id for mode, name, series_id in session.execute(query)}
