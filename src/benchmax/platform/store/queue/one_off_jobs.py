"""One-off jobs: what a child process does once for a user (a doctor's report, an export). The result is kept until its
run or its owner is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from benchmax.platform.store.statements import get_locked
from benchmax.platform.store.tables import Job, OneOffJob

UNFINISHED = ("queued", "active")
REPORTS_KEPT = 50
"""Reports kept of one subject."""


def start(
    db: Session,
    owner_id: str,
    kind: str,
    subject: str,
    *,
    run_id: str | None = None,
    options: Mapping[str, Any] | None = None,
    slots: int = 0,
) -> OneOffJob:
    """A new one-off job, queued. It takes no slot by default, so it waits for no training run."""
    row = OneOffJob(owner_id=owner_id, kind=kind, subject=subject, run_id=run_id, options=dict(options or {}))
    row.reason = "waiting for the runner"
    db.add(row)
    db.flush()
    db.add(Job(run_id=run_id, kind=kind, one_off_id=row.id, priority=1, slots=slots, max_attempts=2))
    for old in of_subject(db, owner_id, kind, subject)[REPORTS_KEPT:]:
        if old.status not in UNFINISHED:
            db.delete(old)
    db.flush()
    return row


def of_subject(db: Session, owner_id: str, kind: str, subject: str) -> list[OneOffJob]:
    """Newest first."""
    query = select(OneOffJob).where(
        OneOffJob.owner_id == owner_id, OneOffJob.kind == kind, OneOffJob.subject == subject
    )
    return list(db.scalars(query.order_by(OneOffJob.created.desc(), OneOffJob.id)))


def going(db: Session, owner_id: str, kind: str) -> int:
    """How many of an owner's one-off jobs are not done."""
    query = select(func.count()).where(
        OneOffJob.owner_id == owner_id, OneOffJob.kind == kind, OneOffJob.status.in_(UNFINISHED)
    )
    return db.scalar(query) or 0


def has_job(db: Session, one_off_id: str) -> bool:
    """Whether a job will still finish it."""
    return bool(db.scalar(select(exists().where(Job.one_off_id == one_off_id, Job.state != "done"))))


def tools(db: Session, owner_id: str) -> dict[str, list[str]]:
    """The tools of each environment the doctor has examined."""
    query = (
        select(OneOffJob.subject, OneOffJob.result["tools"])
        .where(OneOffJob.owner_id == owner_id, OneOffJob.kind == "doctor", OneOffJob.status == "complete")
        .order_by(OneOffJob.created)
    )
    return {subject: list(names) for subject, names in db.execute(query) if isinstance(names, list)}


def set_status(
    db: Session, one_off_id: str, status: str, reason: str = "", result: Mapping[str, Any] | None = None
) -> None:
    """Set its status; one that has ended stays as it is."""
    row = get_locked(db, OneOffJob, one_off_id)
    if row is None or row.status not in UNFINISHED:
        return
    row.status, row.reason = status, reason
    row.result = row.result if result is None else dict(result)
    row.ended = None if status in UNFINISHED else time.time()
