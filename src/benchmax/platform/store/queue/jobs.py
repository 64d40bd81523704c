"""The queue. A job is leased by one supervisor at a time; a lease that is not renewed can be taken by another.

A supervisor names itself by `holder` (random, one per start), its pid and that process's start time. Every change asks
"is it still mine?" in the same statement, so a supervisor whose lease expired changes nothing.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.statements import changed_rows
from benchmax.platform.store.tables import Job, Run
from benchmax.platform.wire.values import ENDED

LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 2.0
_LAUNCH_SECONDS = 60.0


class Holder(NamedTuple):
    """Who holds a lease: one process, never another with the same pid."""

    id: str
    pid: int
    started: float
    """When the process started, Unix seconds."""


def enqueue(db: Session, run_id: str, *, kind: str = "train", eval_id: str | None = None, slots: int = 1) -> Job:
    job = Job(run_id=run_id, kind=kind, eval_id=eval_id, slots=slots)
    db.add(job)
    db.flush()
    return job


def lease(db: Session, holder: Holder, *, slots: int, fewest: int = 0, seconds: float = LEASE_SECONDS) -> Job | None:
    """Take the next job that needs from `fewest` to `slots` slots: highest priority, then oldest; None without one."""
    now = time.time()
    query = (
        select(Job)
        .where(Job.state == "queued", Job.available <= now, Job.slots.between(fewest, slots))
        .order_by(Job.priority.desc(), Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    job = db.scalars(query).first()
    if job is None:
        return None
    job.state = "leased"
    job.attempts += 1
    job.child_pid = job.child_started = None
    _hold(job, holder, now + seconds)
    db.flush()
    return job


def heartbeat(db: Session, job_id: int, holder: Holder) -> bool:
    """Renew a lease; False when another supervisor has it: then stop the child."""
    return _change_own(db, job_id, holder, lease_until=time.time() + LEASE_SECONDS)


def set_child(db: Session, job_id: int, holder: Holder, pid: int, started: float) -> bool:
    """Note the process group of the run, so that the next supervisor can adopt or end it."""
    return _change_own(db, job_id, holder, child_pid=pid, child_started=started)


def finish(db: Session, job_id: int, holder: Holder) -> bool:
    """Mark the job done, however its run ended; False when the lease was lost."""
    return _change_own(db, job_id, holder, state="done", holder=None, lease_until=None)


def give_back(db: Session, job_id: int, holder: Holder, *, attempts: int, delay: float = 0.0) -> bool:
    """Put a job back into the queue and say how many attempts count; False when the lease was lost."""
    back = {"state": "queued", "holder": None, "lease_until": None, "available": time.time() + delay}
    return _change_own(db, job_id, holder, attempts=attempts, **back)


def take_over(db: Session, job_id: int, old_holder: str | None, holder: Holder) -> bool:
    """Take a leased job from a supervisor known to be dead, or whose lease ran out; False if another was faster."""
    job = db.scalars(
        select(Job).where(Job.id == job_id, Job.state == "leased", Job.holder == old_holder).with_for_update()
    ).first()
    if job is None:
        return False
    _hold(job, holder, time.time() + LEASE_SECONDS)
    db.flush()
    return True


def leased(db: Session, holder_id: str | None = None) -> list[Job]:
    """Leased jobs, of one holder or of all."""
    query = select(Job).where(Job.state == "leased")
    if holder_id is not None:
        query = query.where(Job.holder == holder_id)
    return list(db.scalars(query.order_by(Job.id)))


def of_run(db: Session, run_id: str) -> list[Job]:
    return list(db.scalars(select(Job).where(Job.run_id == run_id).order_by(Job.id)))


def drop_queued(db: Session, run_id: str, kind: str | None = None) -> int:
    """Mark a run's waiting jobs done, those of a kind or all; returns how many."""
    statement = update(Job).where(Job.run_id == run_id, Job.state == "queued")
    if kind is not None:
        statement = statement.where(Job.kind == kind)
    return changed_rows(db, statement.values(state="done"))


# What waits, is to be stopped, or was left behind


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


def _hold(job: Job, holder: Holder, until: float) -> None:
    job.holder, job.holder_pid, job.holder_started, job.lease_until = holder.id, holder.pid, holder.started, until


def _change_own(db: Session, job_id: int, holder: Holder, /, **values: Any) -> bool:
    mine = update(Job).where(Job.id == job_id, Job.state == "leased", Job.holder == holder.id)
    return changed_rows(db, mine.values(**values)) == 1
