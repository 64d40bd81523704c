"""Who did what, when and from where. There is no query that changes or removes a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.platform.store.tables import Audit


def note(
    db: Session,
    action: str,
    *,
    user_id: str | None = None,
    actor: str = "",
    target: str = "",
    address: str = "",
    details: Mapping[str, Any] | None = None,
) -> None:
    """Write one row, in the transaction of the action itself."""
    row = Audit(action=action, user_id=user_id, actor=actor, target=target[:200], address=address[:64])
    row.details = dict(details or {})
    db.add(row)


def page(db: Session, *, user_id: str | None = None, limit: int = 100, before: int | None = None) -> list[Audit]:
    """Newest first; of one user, or of all."""
    query = select(Audit)
    if user_id is not None:
        query = query.where(Audit.user_id == user_id)
    if before is not None:
        query = query.where(Audit.id < before)
    return list(db.scalars(query.order_by(Audit.id.desc()).limit(limit)))
