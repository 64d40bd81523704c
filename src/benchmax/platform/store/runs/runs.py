"""Runs: the row that a launch creates, and its statuses: pending → active → complete | failed | stalled | cancelled."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, delete, func, or_, select, update
from sqlalchemy.orm import Session

from benchmax.platform.store.accounts import webhooks
from benchmax.platform.store.runs import events
from benchmax.platform.store.tables import TERMINAL, Event, Run, Secret
from benchmax.platform.store.text import clean

_BY_ID = select(Run).where(Run.id == bindparam("run_id"), Run.deleted.is_(None))  # asked with nearly every request
PATH_NAMES = ("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path")


def create(
    db: Session,
    *,
    owner_id: str,
    name: str,
    kind: str,
    args: Mapping[str, Any],
    paths: Mapping[str, str],
    blobs: Mapping[str, str],
    total_steps: int | None = None,
    reason: str = "waiting for a free slot",
    asked: Mapping[str, Any] | None = None,
    parent: Mapping[str, Any] | None = None,
) -> Run:
    """A new run, `pending`, with its first event. The caller enqueues its job (`jobs.enqueue`)."""
    run = Run(
        owner_id=owner_id,
        name=name,
        kind=kind,
        args=dict(args),
        paths=dict(paths),
        blobs=dict(blobs),
        total_steps=total_steps,
        reason=reason,
        activity=reason,
        asked=dict(asked or {}),
        parent=dict(parent or {}),
    )
    db.add(run)
    db.flush()
    events.append(db, run.id, "training.pending", reason)
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


def set_status(db: Session, run_id: str, status: str, reason: str = "", **data: Any) -> bool:
    """Move a run to another status, with an event `training.<status>`; False if it had ended already.

    A run that ended stays as it is: a late `active` of a dying child changes nothing. `reopen` is the way back.
    """
    run = db.get(Run, run_id, with_for_update=True, populate_existing=True)
    if run is None or run.status in TERMINAL or (run.status == status and run.reason == reason):
        return False
    now, reason = time.time(), clean(reason)
    run.status, run.reason, run.activity, run.updated = status, reason, reason or status, now
    if status == "active" and run.started is None:
        run.started = now - _worked_before(db, run_id)
    if status in TERMINAL:
        run.ended = now
    events.append(db, run_id, f"training.{status}", reason, data=data)
    if status in TERMINAL:
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
    run = db.get(Run, run_id, with_for_update=True, populate_existing=True)
    if run is None or run.status in TERMINAL or run.cancel_requested is not None:
        return False
    run.cancel_requested = run.updated = time.time()
    run.activity = "stopping"
    events.append(db, run_id, "training.cancelling", "The run was asked to stop.")
    return True


def reopen(db: Session, run_id: str, reason: str = "waiting for a free slot") -> bool:
    """Make an ended run `pending` again, to be resumed; False when it has not ended.

    The time it stood still does not count: it starts anew, by as much earlier as it had worked before.
    """
    run = db.get(Run, run_id, with_for_update=True, populate_existing=True)
    if run is None or run.status not in TERMINAL:
        return False
    worked = 0.0 if run.started is None or run.ended is None else max(0.0, run.ended - run.started)
    run.status, run.reason, run.activity = "pending", reason, reason
    run.started = run.ended = run.cancel_requested = None
    run.updated = time.time()
    events.append(db, run_id, "training.resuming", reason, data={"worked": worked})
    return True


def _worked_before(db: Session, run_id: str) -> float:
    """Seconds a run had worked when it was resumed last; 0 for one that never was."""
    resumed = select(Event.data).where(Event.run_id == run_id, Event.kind == "training.resuming")
    data = db.scalar(resumed.order_by(Event.id.desc()).limit(1))
    return float((data or {}).get("worked") or 0.0)


def to_cancel(db: Session, run_ids: Sequence[str]) -> list[str]:
    """Which of these runs are to be stopped: asked to, deleted, or gone from the table."""
    if not run_ids:
        return []
    going = db.scalars(select(Run.id).where(Run.id.in_(run_ids), Run.cancel_requested.is_(None), Run.deleted.is_(None)))
    kept = set(going)
    return [run_id for run_id in run_ids if run_id not in kept]


def unfinished(db: Session) -> list[Run]:
    """Runs that are pending, active or about to be removed: what a runner looks after when it starts."""
    query = select(Run).where(or_(Run.status.not_in(TERMINAL), Run.deleted.is_not(None)))
    return list(db.scalars(query.order_by(Run.created)))


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


def count_open(db: Session, owner_id: str) -> int:
    """The owner's runs that have not ended."""
    query = select(func.count()).where(Run.owner_id == owner_id, Run.status.not_in(TERMINAL), Run.deleted.is_(None))
    return db.scalar(query) or 0
