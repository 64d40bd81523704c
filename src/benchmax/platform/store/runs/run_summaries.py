"""Summaries of runs, for a whole list of them in one query: first and latest reward, speed, failures.

Each number is the first or last value of one metric, so the database seeks once for each, however long the run is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ScalarSelect, Select, bindparam, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from benchmax import metrics
from benchmax.platform.store.tables import MetricName, MetricValue

REWARD, FAILED = metrics.REWARD, "failed"


class End(NamedTuple):
    """The first or last value of a metric."""

    step: int
    value: float
    time: float


@dataclass(slots=True)
class RunSummary:
    """One run in a few numbers; None for metrics it has no values of."""

    train: tuple[End, End] | None = None
    """The first and the latest mean reward."""
    eval: tuple[End, End] | None = None
    failed: float | None = None
    """Share of the latest step's rollouts."""

    def seconds_left(self, total_steps: int | None, worked: float) -> float | None:
        """How long the rest takes at the speed so far; None before the second step.

        Between two values the run may have stood still for days, but not in the seconds it has `worked`.
        """
        if self.train is None or not total_steps:
            return None
        first, last = self.train
        if last.step <= first.step or last.time <= first.time:
            return None
        a_step = min((last.time - first.time) / (last.step - first.step), worked / (last.step + 1))
        return max(0, total_steps - 1 - last.step) * a_step


def of_runs(db: Session, run_ids: Sequence[str]) -> dict[str, RunSummary]:
    """Every run's summary, also of those without values."""
    found = {run_id: RunSummary() for run_id in run_ids}
    for run_id, split, name, *values in db.execute(_ENDS, {"run_ids": list(run_ids)}):
        if None in values:
            continue
        ends = End(*values[:3]), End(*values[3:])
        summary = found[run_id]
        if name == FAILED:
            summary.failed = ends[1].value if split == "train" else summary.failed
        elif split == "train":
            summary.train = ends
        else:
            summary.eval = ends
    return found


def _end(column: InstrumentedAttribute[Any], last: bool) -> ScalarSelect[Any]:
    order = MetricValue.step.desc() if last else MetricValue.step
    of_metric = select(column).where(MetricValue.run_id == MetricName.run_id, MetricValue.metric_id == MetricName.id)
    return of_metric.order_by(order).limit(1).correlate(MetricName).scalar_subquery()


def _ends() -> Select[Any]:
    columns = [
        _end(column, last)
        for last in (False, True)
        for column in (MetricValue.step, MetricValue.value, MetricValue.time)
    ]
    return select(MetricName.run_id, MetricName.split, MetricName.name, *columns).where(
        MetricName.run_id.in_(bindparam("run_ids", expanding=True)),
        MetricName.split.in_(["train", "eval"]),
        MetricName.name.in_([REWARD, FAILED]),
    )


_ENDS = _ends()  # built once: every list of runs asks it
