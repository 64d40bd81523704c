"""Runs: the row that a launch creates, and its statuses: pending → active → complete | failed | stalled | cancelled."""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, delete, or_, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.accounts import webhooks
from benchmax.platform.store.clean_text import clean
from benchmax.platform.store.runs import events
from benchmax.platform.store.statements import get_locked
from benchmax.platform.store.tables import Event, Run, Secret
from benchmax.platform.wire.values import ENDED, RunStatus

_BY_ID = select(Run).where(Run.id == bindparam("run_id"), Run.deleted.is_(None))  # asked with nearly every request

WAITING = "waiting for a free slot"


def create(db: Session, *, owner_id: str, name: str, kind: str, **columns: Any) -> Run:
    """A new run, `pending`, with its first event; `columns` are others of `Run`, such as `args` and `paths`.

    The caller enqueues its job (`jobs.enqueue`).
    """
    run = Run(owner_id=owner_id, name=name, kind=kind, reason=WAITING, activity=WAITING, **columns)
    db.add(run)
    db.flush()
    events.append(db, run.id, "training.pending", WAITING)
    return run


def newest_on(db: Session, owner_id: str, dataset: str) -> Run | None:
    """The newest run of a user that was launched with a dataset, as a whole or split."""
    named = json.dumps(dataset)
    used = [cast(column, Text).contains(named, autoescape=True) for column in (Run.paths, Run.blobs)]
    mine = select(Run).where(Run.owner_id == owner_id, Run.deleted.is_(None), or_(*used))
    return db.scalars(mine.order_by(Run.created.desc()).limit(1)).first()


def get(db: Session, run_id: str) -> Run | None:
    """The run, unless it was deleted."""
    return db.scalars(_BY_ID, {"run_id": run_id}).one_or_none()


def visible(db: Session, run_id: str, user_id: str | None) -> Run | None:
    """The run, if this user owns it or it is public."""
    run = get(db, run_id)
    return run if run is not None and (run.is_public or run.owner_id == user_id) else None


def of_owner(
    db: Session,
    owner_id: str,
    *,
    archived: bool | None = False,
    status: str | None = None,
    tag: str | None = None,
    search: str = "",
    limit: int = 1000,
    offset: int = 0,
) -> list[Run]:
    """The owner's runs, newest first. `archived=None` returns both kinds."""
    query = select(Run).where(Run.owner_id == owner_id, Run.deleted.is_(None))
    if archived is not None:
        query = query.where(Run.archived == archived)
    if status:
        query = query.where(Run.status == status)
    if search:
        query = query.where(Run.name.icontains(search, autoescape=True))
    query = query.order_by(Run.created.desc(), Run.id)
    if tag is None:
        return list(db.scalars(query.limit(limit).offset(offset)))
    # The database finds them by their JSON, letter case aside; what is left is counted here.
    found = db.scalars(query.where(cast(Run.tags, Text).contains(json.dumps(tag), autoescape=True)))
    return [run for run in found if tag in run.tags][offset : offset + limit]


def set_status(db: Session, run_id: str, status: RunStatus, reason: str = "", **data: Any) -> bool:
    """Move a run to another status, with an event `training.<status>`; False if it had ended already.

    A run that ended stays as it is: a late `active` of a dying child changes nothing. `reopen` is the way back.
    """
    run = get_locked(db, Run, run_id)
    if run is None or run.status in ENDED or (run.status == status and run.reason == reason):
        return False
    now, reason = time.time(), clean(reason)
    run.status, run.reason, run.activity, run.updated = status, reason, reason or status, now
    if status == "active" and run.started is None:
        run.started = now - _worked_before(db, run_id)
    if status in ENDED:
        run.ended = now
    events.append(db, run_id, f"training.{status}", reason, data=data)
    if status in ENDED:
        webhooks.queue_end(db, run)
    return True


def set_progress(
    db: Session, run_id: str, *, step: int | None = None, total: int | None = None, activity: str | None = None
) -> None:
    """Record how far the run is, for lists; no event."""
    values: dict[str, Any] = {"updated": time.time()}
    if step is not None:
        values["latest_step"] = step
        values["furthest_step"] = case((Run.furthest_step > step, Run.furthest_step), else_=step)
    if total is not None:
        values["total_steps"] = total
    if activity is not None:
        values["activity"] = clean(activity)
    db.execute(update(Run).where(Run.id == run_id).values(**values))


def add_errors(db: Session, run_id: str, count: int) -> None:
    """Count failed rollouts or errors of the run."""
    db.execute(update(Run).where(Run.id == run_id).values(error_count=Run.error_count + count))


def request_cancel(db: Session, run_id: str) -> bool:
    """Ask the runner to stop a run; False when it has ended or was asked before."""
    run = get_locked(db, Run, run_id)
    if run is None or run.status in ENDED or run.cancel_requested is not None:
        return False
    run.cancel_requested = run.updated = time.time()
    run.activity = "stopping"
    events.append(db, run_id, "training.cancelling", "The run was asked to stop.")
    return True


def reopen(db: Session, run_id: str) -> bool:
    """Make an ended run `pending` again, to be resumed; False when it has not ended.

    The time it stood still does not count: it starts anew, by as much earlier as it had worked before.
    """
    run = get_locked(db, Run, run_id)
    if run is None or run.status not in ENDED:
        return False
    worked = 0.0 if run.started is None or run.ended is None else max(0.0, run.ended - run.started)
    run.status, run.reason, run.activity = "pending", WAITING, WAITING
    run.started = run.ended = run.cancel_requested = None
    run.updated = time.time()
    events.append(db, run_id, "training.resuming", WAITING, data={"worked": worked})
    return True


def _worked_before(db: Session, run_id: str) -> float:
    """Seconds a run had worked when it was resumed last; 0 for one that never was."""
    resumed = select(Event.data).where(Event.run_id == run_id, Event.kind == "training.resuming")
    data = db.scalar(resumed.order_by(Event.id.desc()).limit(1))
    return float((data or {}).get("worked") or 0.0)


def is_to_stop(db: Session, run_id: str) -> bool:
    """Whether the run was asked to stop, was deleted, or is gone from the table."""
    run = get(db, run_id)
    return run is None or run.cancel_requested is not None


def mark_deleted(db: Session, run_id: str) -> None:
    """Hide a run, forget its secrets, have it stopped; the runner calls `remove` when nothing of it is left."""
    run = db.get(Run, run_id)
    if run is not None:
        run.deleted = run.updated = time.time()
        db.execute(delete(Secret).where(Secret.run_id == run_id))


def remove(db: Session, run_id: str) -> None:
    """Delete the row and everything that refers to it."""
    run = db.get(Run, run_id)
    if run is not None:
        db.delete(run)
