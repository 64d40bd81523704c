"""Forgets and counts what was read from a run directory and can be read again."""

from __future__ import annotations

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.runs import evals, rollouts
from benchmax.platform.store.tables import Cursor, Event, MetricName, MetricValue, RolloutRow, Run

EVALS = "evals/"
"""The folder of evaluations outside training, in a run directory."""
TRAINER = "trainer."
"""How the kinds of events begin that were read from a run directory."""


def clear(db: Session, run_id: str) -> None:
    """Forget all that was read from a run's directory; what the platform itself noted of the run stays."""
    # Evaluations outside training come from other files.
    metrics = select(MetricName.id).where(MetricName.run_id == run_id, MetricName.split != evals.SPLIT)
    db.execute(delete(MetricValue).where(MetricValue.run_id == run_id, MetricValue.metric_id.in_(metrics)))
    db.execute(delete(MetricName).where(MetricName.run_id == run_id, MetricName.split != evals.SPLIT))
    rollouts.drop(db, run_id, RolloutRow.eval_id == "")
    db.execute(delete(Cursor).where(Cursor.run_id == run_id, ~Cursor.file.startswith(EVALS, autoescape=True)))
    forget_events(db, run_id)
    db.execute(delete(Event).where(Event.run_id == run_id, Event.category == "feed"))
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


def forget_events(db: Session, run_id: str) -> None:
    """Forget the trainer's events."""
    db.execute(delete(Event).where(Event.run_id == run_id, Event.kind.startswith(TRAINER, autoescape=True)))


def forget_step(db: Session, run_id: str) -> None:
    """Reset the run to before its first step."""
    db.execute(update(Run).where(Run.id == run_id).values(latest_step=None))
