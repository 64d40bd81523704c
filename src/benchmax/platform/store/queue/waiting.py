"""What the runner asks of the queue besides leases: what waits, what is to be stopped, what was left behind."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import CursorResult, exists, func, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.queue.jobs import Holder
from benchmax.platform.store.tables import TERMINAL, Job, Run


def anything_waits(db: Session, slots: int, fewest: int = 0) -> bool:
    """Whether a job could be leased now: a read, so that an idle runner takes no write lock."""
    waits = select(Job.id).where(Job.state == "queued", Job.available <= time.time(), Job.slots.between(fewest, slots))
    return db.scalars(waits.limit(1)).first() is not None


def give_back(db: Session, job_id: int, holder: Holder, *, attempts: int, delay: float = 0.0) -> bool:
    """Put a job back into the queue and say how many attempts count; False when the lease was lost."""
    statement = (
        update(Job)
        .where(Job.id == job_id, Job.state == "leased", Job.holder == holder.id)
        .values(state="queued", holder=None, lease_until=None, available=time.time() + delay, attempts=attempts)
    )
    result = db.execute(statement)
    return isinstance(result, CursorResult) and result.rowcount == 1


def to_drop(db: Session) -> list[Job]:
    """Waiting jobs whose run is to be stopped, or was deleted."""
    stopped = Run.deleted.is_not(None) | (Run.cancel_requested.is_not(None) & (Job.kind == "train"))
    return list(db.scalars(select(Job).join(Run, Run.id == Job.run_id).where(Job.state == "queued", stopped)))


def drop(db: Session, job_id: int) -> bool:
    """Mark a waiting job done; False when it no longer waits."""
    result = db.execute(update(Job).where(Job.id == job_id, Job.state == "queued").values(state="done"))
    return isinstance(result, CursorResult) and result.rowcount == 1


def waiting_runs(db: Session) -> list[tuple[str, str]]:
    """(run, activity) of runs that wait for their first start, in the order they will be taken."""
    query = (
        select(Run.id, Run.activity)
        .join(Job, Job.run_id == Run.id)
        .where(Job.state == "queued", Job.kind == "train", Job.attempts == 0, Run.status == "pending")
        .order_by(Job.priority.desc(), Job.id)
    )
    return [(row[0], row[1]) for row in db.execute(query)]


def without_job(db: Session, older_than: float = 60.0) -> list[str]:
    """Runs that have not ended and have no job to finish them."""
    open_job = exists().where(Job.run_id == Run.id, Job.kind == "train", Job.state != "done")
    query = select(Run.id).where(
        Run.status.not_in(TERMINAL), Run.deleted.is_(None), Run.updated < time.time() - older_than, ~open_job
    )
    return list(db.scalars(query))


def deleted_runs(db: Session) -> list[str]:
    """Runs to be removed for good: deleted, and no job of theirs is held."""
    held = exists().where(Job.run_id == Run.id, Job.state == "leased")
    return list(db.scalars(select(Run.id).where(Run.deleted.is_not(None), ~held)))


def counts(db: Session) -> dict[str, Any]:
    """How many runs there are by status, and jobs by state."""
    runs = select(Run.status, func.count()).where(Run.deleted.is_(None)).group_by(Run.status)
    jobs = select(Job.state, func.count()).where(Job.state != "done").group_by(Job.state)
    return {
        "runs": {row[0]: row[1] for row in db.execute(runs)},
        "jobs": {row[0]: row[1] for row in db.execute(jobs)},
    }
