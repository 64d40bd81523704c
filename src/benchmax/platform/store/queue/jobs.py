"""The queue. A job is leased by one supervisor at a time; a lease that is not renewed can be taken by another.

A supervisor names itself by `holder` (random, one per start), its pid and that process's start time. Every change asks
"is it still mine?" in the same statement, so a supervisor whose lease expired changes nothing.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.statements import changed_rows
from benchmax.platform.store.tables import Job

LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 2.0


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


def _hold(job: Job, holder: Holder, until: float) -> None:
    job.holder, job.holder_pid, job.holder_started, job.lease_until = holder.id, holder.pid, holder.started, until


def _change_own(db: Session, job_id: int, holder: Holder, /, **values: Any) -> bool:
    mine = update(Job).where(Job.id == job_id, Job.state == "leased", Job.holder == holder.id)
    return changed_rows(db, mine.values(**values)) == 1
