"""The feed of a run: what happened, in an order that readers can rely on.

Every reader keeps the last id it saw and asks for what came after it. That works because the ids of one run become
visible in growing order: a writer locks the run's row first (SQLite has one writer anyway).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from benchmax.platform.store.clean_text import clean, clean_json
from benchmax.platform.store.tables import Event, Run

_LAST_ID = select(func.max(Event.id)).where(Event.run_id == bindparam("run_id"))
SHOWN = ("lifecycle", "artifact", "diagnostic", "alert")


def append(
    db: Session,
    run_id: str,
    kind: str,
    message: str = "",
    *,
    category: str = "lifecycle",
    data: Mapping[str, Any] | None = None,
    at: float | None = None,
) -> Event:
    """Add one event. Use category `feed` for what only live readers need (`points`, `rollouts`)."""
    db.execute(select(Run.id).where(Run.id == run_id).with_for_update())
    row = Event(
        run_id=run_id,
        kind=clean(kind, 80),
        message=clean(message),
        category=category,
        data=clean_json(dict(data or {})),
        time=at or time.time(),
    )
    db.add(row)
    db.flush()
    return row


def of_run(db: Session, run_id: str, categories: Sequence[str] = SHOWN, limit: int = 10_000) -> list[Event]:
    """Oldest first; the newest `limit` of them. Those that `reindex` read again have late ids and early times."""
    query = select(Event).where(Event.run_id == run_id, Event.category.in_(categories))
    found = db.scalars(query.order_by(Event.id.desc()).limit(limit))
    return sorted(found, key=lambda event: (event.time, event.id))


def after(db: Session, run_id: str, last_id: int, limit: int = 500) -> list[Event]:
    """What a live reader has not seen, oldest first."""
    query = select(Event).where(Event.run_id == run_id, Event.id > last_id)
    return list(db.scalars(query.order_by(Event.id).limit(limit)))


def last_id(db: Session, run_id: str) -> int:
    """The newest id, 0 when there is none."""
    return db.scalar(_LAST_ID, {"run_id": run_id}) or 0
