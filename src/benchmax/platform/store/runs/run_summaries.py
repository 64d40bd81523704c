"""How runs stand, for a whole list of them in one query: first and latest reward, speed, failures.

Each number is the end of one series, so the database seeks once for each, however long the series is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ScalarSelect, Select, bindparam, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from benchmax import metrics
from benchmax.platform.store.tables import Point, Series

REWARD, FAILED = metrics.REWARD, "failed"


class End(NamedTuple):
    """One end of a series."""

    step: int
    value: float
    time: float


@dataclass(slots=True)
class Standing:
    """Where one run stands; None for what it has no points of."""

    train: tuple[End, End] | None = None
    """The first and the latest mean reward."""
    eval: tuple[End, End] | None = None
    failed: float | None = None
    """Share of the latest step's rollouts."""

    def seconds_left(self, total_steps: int | None, worked: float) -> float | None:
        """At the speed so far; None when two steps are not there yet.

        Between two points the run may have stood still for days, but not in the seconds it has `worked`.
        """
        if self.train is None or not total_steps:
            return None
        first, last = self.train
        if last.step <= first.step or last.time <= first.time:
            return None
        a_step = min((last.time - first.time) / (last.step - first.step), worked / (last.step + 1))
        return max(0, total_steps - 1 - last.step) * a_step


def of_runs(session: Session, run_ids: Sequence[str]) -> dict[str, Standing]:
    """Every run's standing, also of those without points."""
    found = {run_id: Standing() for run_id in run_ids}
    for run_id, mode, name, *values in session.execute(_ENDS, {"run_ids": list(run_ids)}):
        if None in values:
            continue
        ends = End(*values[:3]), End(*values[3:])
        standing = found[run_id]
        if name == FAILED:
            standing.failed = ends[1].value if mode == "train" else standing.failed
        elif mode == "train":
            standing.train = ends
        else:
            standing.eval = ends
    return found


def _end(column: InstrumentedAttribute[Any], last: bool) -> ScalarSelect[Any]:
    order = Point.step.desc() if last else Point.step
    of_series = select(column).where(Point.run_id == Series.run_id, Point.series_id == Series.id)
    return of_series.order_by(order).limit(1).correlate(Series).scalar_subquery()


def _ends() -> Select[Any]:
    columns = [_end(column, last) for last in (False, True) for column in (Point.step, Point.value, Point.time)]
    return select(Series.run_id, Series.mode, Series.name, *columns).where(
        Series.run_id.in_(bindparam("run_ids", expanding=True)),
        Series.mode.in_(["train", "eval"]),
        Series.name.in_([REWARD, FAILED]),
    )


_ENDS = _ends()  # built once: every list of runs asks it
