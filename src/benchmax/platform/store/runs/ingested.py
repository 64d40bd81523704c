"""What came from a run directory and can come from it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.runs import evals
from benchmax.platform.store.runs.metrics import write_all
from benchmax.platform.store.tables import Cursor, EnvLog, Event, MetricName, MetricValue, RolloutRow, Run

EVALS = "evals/"
"""The folder of evaluations outside training, in a run directory."""
TRAINER = "trainer."
"""How the kinds of events begin that were read from a run directory."""


def clear(db: Session, run_id: str) -> None:
    """Forget all that was read from a run's directory; what the platform itself noted of the run stays."""
    # Evaluations outside training come from other files.
    series = select(MetricName.id).where(MetricName.run_id == run_id, MetricName.mode != evals.MODE)
    db.execute(delete(MetricValue).where(MetricValue.run_id == run_id, MetricValue.series_id.in_(series)))
    db.execute(delete(MetricName).where(MetricName.run_id == run_id, MetricName.mode != evals.MODE))
    own = and_(RolloutRow.run_id == run_id, RolloutRow.eval_id == "")
    db.execute(delete(EnvLog).where(EnvLog.run_id == run_id, EnvLog.rollout_id.in_(select(RolloutRow.id).where(own))))
    db.execute(delete(RolloutRow).where(own))
    db.execute(delete(Cursor).where(Cursor.run_id == run_id, ~Cursor.file.startswith(EVALS, autoescape=True)))
    from_files = or_(Event.kind.startswith(TRAINER, autoescape=True), Event.category == "feed")
    db.execute(delete(Event).where(Event.run_id == run_id, from_files))
    db.execute(update(Run).where(Run.id == run_id).values(error_count=0, latest_step=None))


def count_errors(db: Session, run_id: str) -> None:
    """Set the run's count of failed rollouts from the index."""
    failed = select(func.count()).where(
        RolloutRow.run_id == run_id, RolloutRow.eval_id == "", RolloutRow.error_type.is_not(None)
    )
    db.execute(update(Run).where(Run.id == run_id).values(error_count=failed.scalar_subquery()))


def count_eval(db: Session, run_id: str, eval_id: str) -> int:
    """Rollouts an evaluation has; one that was done again counts once."""
    rows = select(RolloutRow.example_id, RolloutRow.sample).where(
        RolloutRow.run_id == run_id, RolloutRow.eval_id == eval_id
    )
    return db.scalar(select(func.count()).select_from(rows.distinct().subquery())) or 0


def forget_step(db: Session, run_id: str) -> None:
    """Reset the run to before its first step."""
    db.execute(update(Run).where(Run.id == run_id).values(latest_step=None))


def offsets(db: Session, run_id: str, files: Sequence[str]) -> dict[str, int]:
    """How far these files were read. Another reader of the run waits until this transaction ends."""
    db.execute(select(Run.id).where(Run.id == run_id).with_for_update())
    query = select(Cursor.file, Cursor.offset).where(Cursor.run_id == run_id, Cursor.file.in_(files))
    return {row[0]: row[1] for row in db.execute(query)}


def move(db: Session, run_id: str, read: Mapping[str, tuple[int, int]]) -> None:
    """Remember offset and fingerprint of several files at once."""
    rows = [
        {"run_id": run_id, "file": file, "offset": offset, "inode": fingerprint}
        for file, (offset, fingerprint) in read.items()
    ]
    write_all(db, Cursor, rows, key=("run_id", "file"))
