"""What was read from a run directory: how far each of its files, how much it was, and how to forget it.

A cursor moves in the transaction of what was read: no gap, no double.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.runs import evals, rollouts
from benchmax.platform.store.statements import upsert
from benchmax.platform.store.tables import Cursor, Event, MetricName, MetricValue, RolloutRow, Run

EVALS = "evals/"
"""The folder of evaluations outside training, in a run directory."""
TRAINER = "trainer."
"""How the kinds of events begin that were read from a run directory."""


# How far files were read


def offsets(db: Session, run_id: str) -> dict[str, tuple[int, int]]:
    """Offset and fingerprint of each file that was read, by its name relative to the run directory."""
    return {each.file: (each.offset, each.inode) for each in db.scalars(select(Cursor).where(Cursor.run_id == run_id))}


def locked_offsets(db: Session, run_id: str, files: Sequence[str]) -> dict[str, int]:
    """How far these files were read. Another reader of the run waits until this transaction ends."""
    db.execute(select(Run.id).where(Run.id == run_id).with_for_update())
    query = select(Cursor.file, Cursor.offset).where(Cursor.run_id == run_id, Cursor.file.in_(files))
    return dict(db.execute(query).all())


def move_cursors(db: Session, run_id: str, read: Mapping[str, tuple[int, int]]) -> None:
    """Remember offset and fingerprint of each file; another fingerprint means that it was replaced."""
    rows = [
        {"run_id": run_id, "file": file, "offset": offset, "inode": fingerprint}
        for file, (offset, fingerprint) in read.items()
    ]
    upsert(db, Cursor, rows, key=("run_id", "file"))


def forget_file(db: Session, run_id: str, file: str) -> None:
    """Read a file from the start again."""
    db.execute(delete(Cursor).where(Cursor.run_id == run_id, Cursor.file == file))


# What was read of them


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
