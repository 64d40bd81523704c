"""Evaluations outside training, of a run's checkpoint, its base model or another endpoint. Their rollouts have the
split `external-eval` and the eval's id."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.platform.store.runs import events, runs
from benchmax.platform.store.statements import get_if, get_locked
from benchmax.platform.store.tables import Eval
from benchmax.platform.wire.values import ENDED, RunStatus

SPLIT = "external-eval"


def create(
    db: Session, run_id: str, *, model: str, name: str = "", options: Mapping[str, Any] | None = None, total: int = 0
) -> Eval:
    """A new eval, `pending`. The caller enqueues its job (`jobs.enqueue(kind="eval", eval_id=…)`)."""
    row = Eval(
        run_id=run_id, model=model, name=name or model, options=dict(options or {}), total=total, reason=runs.WAITING
    )
    db.add(row)
    db.flush()
    return row


def of_run(db: Session, run_id: str) -> list[Eval]:
    return list(db.scalars(select(Eval).where(Eval.run_id == run_id).order_by(Eval.created)))


def get(db: Session, run_id: str, eval_id: str) -> Eval | None:
    return get_if(db, Eval, eval_id, run_id=run_id)


def set_progress(
    db: Session,
    eval_id: str,
    *,
    status: RunStatus | None = None,
    reason: str = "",
    done: int | None = None,
    total: int | None = None,
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Set the eval's progress; an ended one stays as it is. A change of status is sent to the run's live readers."""
    row = get_locked(db, Eval, eval_id)
    if row is None or row.status in ENDED:
        return
    row.done = row.done if done is None else done
    row.total = row.total if total is None else total
    row.summary = row.summary if summary is None else dict(summary)
    if status and status != row.status:
        row.status, row.reason = status, reason
        row.ended = time.time() if status in ENDED else None
    data = {"id": eval_id, "status": row.status, "done": row.done, "total": row.total}
    events.append(db, row.run_id, "eval", category="feed", data=data)
