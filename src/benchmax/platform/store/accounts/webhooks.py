"""Webhooks: who is notified of what, and the queue of messages to them.

A message is queued in the transaction of what it reports, so neither is there without the other. It is sent at least
once: a sender that dies between the answer and its note sends it again, under the same id.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.errors import UsageError
from benchmax.platform.store.accounts import secrets as vault
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.runs import run_summaries
from benchmax.platform.store.statements import changed_rows
from benchmax.platform.store.tables import Delivery, Run, Webhook

ENDED, ALERT, TEST = "run.ended", "run.alert", "test"
PAUSES = (10.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""Seconds after each attempt that failed, before the next."""
LEASE_SECONDS = 60.0
"""For one attempt; after that another sender may make it."""
DELIVERIES_KEPT = 100
"""Deliveries of a webhook that are listed."""
MOST_QUEUED = 500
"""Messages that wait for one webhook; a further one is left out."""
STALE_SECONDS = 3_600.0
"""An alert older than this, found when a run's records are read again, is not sent."""
SECRET_NAME = "signing_secret"
_STATUS_TEXTS = {"complete": "is done", "failed": "failed", "stalled": "stalled", "cancelled": "was stopped"}


class Outcome(NamedTuple):
    """How one attempt ended."""

    answer: int | None
    problem: str = ""
    final: bool = False
    """Whether another attempt would end the same way."""


def create(db: Session, keys: Vault, owner_id: str, url: str, events: Sequence[str]) -> tuple[Webhook, str]:
    """A new webhook, and the secret its deliveries are signed with: shown now and never again."""
    if len(of_owner(db, owner_id)) >= limits.WEBHOOKS:
        raise UsageError(f"You have {limits.WEBHOOKS} webhooks already. Remove one first.")
    row = Webhook(owner_id=owner_id, url=url, events=sorted(set(events)))
    db.add(row)
    db.flush()
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    row.secret_id = keys.put(db, owner_id, SECRET_NAME, secret, row.id).id
    db.flush()
    return row, secret


def of_owner(db: Session, owner_id: str) -> list[Webhook]:
    """Oldest first."""
    query = select(Webhook).where(Webhook.owner_id == owner_id)
    return list(db.scalars(query.order_by(Webhook.created, Webhook.id)))


def remove(db: Session, row: Webhook) -> None:
    """Forget a webhook, its secret and its deliveries."""
    secret = vault.find(db, row.owner_id, SECRET_NAME, row.id)
    db.delete(row)
    db.flush()
    if secret is not None:
        db.delete(secret)


# What is sent


def queue_end(db: Session, run: Run) -> None:
    """Queue the end of a run for the owner's webhooks that want it; not of one that was deleted."""
    if run.deleted is not None:
        return
    summary = run_summaries.of_runs(db, [run.id])[run.id]
    rewards = {
        "reward": summary.train[1].value if summary.train else None,
        "evalReward": summary.eval[1].value if summary.eval else None,
    }
    steps = {"steps": None if run.latest_step is None else run.latest_step + 1, "totalSteps": run.total_steps}
    text = f"{run.name} {_STATUS_TEXTS.get(run.status, run.status)}. {run.reason}".strip()
    data = {"status": run.status, "reason": run.reason, **steps, **rewards}
    _queue_for_owner(db, run, ENDED, f"{run.id} {ENDED} {run.ended:.6f}", text, data)


def queue_alert(db: Session, run_id: str, message: str, alert: Mapping[str, Any], at: float) -> None:
    """Queue an alert of a run. One that is raised again at the same step, as after a resumption, is not sent twice."""
    run = db.get(Run, run_id)
    if run is None or time.time() - at > STALE_SECONDS:
        return
    kind, step, named = str(alert.get("alert") or "alert"), alert.get("step"), alert.get("rollouts")
    shown = step + 1 if isinstance(step, int) else None
    text = f"{run.name}{'' if shown is None else f', step {shown}'}: {message}"
    data = {"alert": kind, "step": shown, "message": message, "rollouts": named[:10] if isinstance(named, list) else []}
    _queue_for_owner(db, run, ALERT, f"{run.id} {ALERT} {kind} {step}", text, data)


def queue_test(db: Session, row: Webhook) -> Delivery:
    """Queue an empty message, to see whether it arrives."""
    payload = {"type": TEST, "text": "A message to try this webhook, from benchmax.", "data": {}}
    return _queue(db, row, TEST, f"{TEST} {secrets.token_hex(8)}", payload)


def _queue_for_owner(db: Session, run: Run, event: str, subject: str, text: str, data: Mapping[str, Any]) -> None:
    payload = {"type": event, "text": text, "data": {"runId": run.id, "name": run.name, **data}}
    for row in of_owner(db, run.owner_id):
        if event not in row.events or _count(db, row, Delivery.subject == subject[:200]):
            continue
        if _count(db, row, Delivery.state == "queued") < MOST_QUEUED:
            _queue(db, row, event, subject, payload, run.id)


def _count(db: Session, row: Webhook, condition: ColumnElement[bool]) -> int:
    return db.scalar(select(func.count()).where(Delivery.webhook_id == row.id, condition)) or 0


def _queue(db: Session, row: Webhook, event: str, subject: str, payload: dict[str, Any], run_id: str = "") -> Delivery:
    delivery = Delivery(webhook_id=row.id, subject=subject[:200], event=event, run_id=run_id, payload=payload)
    db.add(delivery)
    db.flush()
    newest = select(Delivery.id).where(Delivery.webhook_id == row.id).order_by(Delivery.id.desc())
    oldest_kept = newest.offset(DELIVERIES_KEPT - 1).limit(1).scalar_subquery()
    old = (Delivery.webhook_id == row.id, Delivery.state != "queued", Delivery.id < oldest_kept)
    db.execute(delete(Delivery).where(*old))
    return delivery


# Sending


def deliveries(db: Session, webhook_id: str, limit: int = DELIVERIES_KEPT) -> list[Delivery]:
    """Newest first."""
    query = select(Delivery).where(Delivery.webhook_id == webhook_id)
    return list(db.scalars(query.order_by(Delivery.id.desc()).limit(limit)))


def due(db: Session, limit: int) -> list[Delivery]:
    """What can be sent now, oldest first."""
    query = select(Delivery).where(Delivery.state == "queued", Delivery.available <= time.time())
    return list(db.scalars(query.order_by(Delivery.available, Delivery.id).limit(limit)))


def claim(db: Session, delivery: Delivery) -> bool:
    """Begin an attempt; False when another sender began it, or the webhook is gone."""
    mine = update(Delivery).where(
        Delivery.id == delivery.id, Delivery.state == "queued", Delivery.attempts == delivery.attempts
    )
    values = {"attempts": delivery.attempts + 1, "available": time.time() + LEASE_SECONDS}
    return changed_rows(db, mine.values(**values)) == 1


def settle(db: Session, delivery_id: int, outcome: Outcome) -> None:
    """Note how an attempt ended: delivered, given up, or to be tried again after a pause."""
    row = db.get(Delivery, delivery_id, populate_existing=True)
    if row is None or row.state != "queued":
        return
    row.answer, row.problem = outcome.answer, outcome.problem
    if outcome.problem and not outcome.final and row.attempts <= len(PAUSES):
        row.available = time.time() + PAUSES[row.attempts - 1]
        return
    row.state, row.ended = "failed" if outcome.problem else "delivered", time.time()
