"""What the runner looks up in the queue besides leases: what waits, is to be stopped, or was left behind."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.statements import changed_rows
from benchmax.platform.store.tables import Job, Run
from benchmax.platform.wire.values import ENDED

_LAUNCH_SECONDS = 60.0


def anything_waits(db: Session, slots: int, fewest: int = 0) -> bool:
    """Whether a job could be leased now: a read, so that an idle runner takes no write lock."""
    waits = select(Job.id).where(Job.state == "queued", Job.available <= time.time(), Job.slots.between(fewest, slots))
    return db.scalars(waits.limit(1)).first() is not None


def to_drop(db: Session) -> list[Job]:
    """Waiting jobs whose run is to be stopped, or was deleted."""
    stopped = Run.deleted.is_not(None) | (Run.cancel_requested.is_not(None) & (Job.kind == "train"))
    return list(db.scalars(select(Job).join(Run, Run.id == Job.run_id).where(Job.state == "queued", stopped)))


def drop(db: Session, job_id: int) -> bool:
    """Mark a waiting job done; False when it no longer waits."""
    return changed_rows(db, update(Job).where(Job.id == job_id, Job.state == "queued").values(state="done")) == 1


def waiting_runs(db: Session) -> list[tuple[str, str]]:
    """(run, activity) of runs that wait for their first start, in the order they will be taken."""
    query = (
        select(Run.id, Run.activity)
        .join(Job, Job.run_id == Run.id)
        .where(Job.state == "queued", Job.kind == "train", Job.attempts == 0, Run.status == "pending")
        .order_by(Job.priority.desc(), Job.id)
    )
    return list(db.execute(query))


def without_job(db: Session) -> list[str]:
    """Runs that have not ended, have no job to finish them, and are not just being launched."""
    open_job = exists().where(Job.run_id == Run.id, Job.kind == "train", Job.state != "done")
    query = select(Run.id).where(
        Run.status.not_in(ENDED), Run.deleted.is_(None), Run.updated < time.time() - _LAUNCH_SECONDS, ~open_job
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
    return {"runs": dict(db.execute(runs).all()), "jobs": dict(db.execute(jobs).all())}
