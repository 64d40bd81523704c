"""Webhooks: who wants to be told of what, and the queue of messages to them.

A message is queued in the transaction of what it tells of, so neither is there without the other. It is sent at least
once: a sender that dies between the answer and its note sends it again, under the same id.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.errors import UsageError
from benchmax.platform.store.accounts import secrets as vault
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.runs import run_summaries as standings
from benchmax.platform.store.tables import Delivery, Run, Webhook

ENDED, ALERT, TEST = "run.ended", "run.alert", "test"
EVENTS = (ENDED, ALERT)
"""What a webhook can be told of."""
PAUSES = (10.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""Seconds after each attempt that failed, before the next."""
LEASE_SECONDS = 60.0
"""For one attempt; after that another sender may make it."""
KEPT = 100
"""Deliveries of a webhook that are listed."""
MOST_QUEUED = 500
"""Messages that wait for one webhook; a further one is left out."""
STALE_SECONDS = 3_600.0
"""An alert older than this, read when a run's records are read again, is no news."""
SECRET = "signing_secret"
_WORDS = {"complete": "is done", "failed": "failed", "stalled": "stalled", "cancelled": "was stopped"}


class Outcome(NamedTuple):
    """How one attempt ended."""

    answer: int | None
    problem: str = ""
    final: bool = False
    """Whether another attempt would end the same way."""


def create(session: Session, keys: Vault, owner_id: str, url: str, events: Sequence[str]) -> tuple[Webhook, str]:
    """A new webhook, and the secret its deliveries are signed with: shown now and never again."""
    if len(of_owner(session, owner_id)) >= limits.WEBHOOKS:
        raise UsageError(f"You have {limits.WEBHOOKS} webhooks already. Remove one first.")
    row = Webhook(owner_id=owner_id, url=url, events=sorted(set(events)))
    session.add(row)
    session.flush()
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    row.secret_id = keys.put(session, owner_id, SECRET, secret, row.id).id
    session.flush()
    return row, secret


def of_owner(session: Session, owner_id: str) -> list[Webhook]:
    """Oldest first."""
    query = select(Webhook).where(Webhook.owner_id == owner_id)
    return list(session.scalars(query.order_by(Webhook.created, Webhook.id)))


def find(session: Session, owner_id: str, webhook_id: str) -> Webhook | None:
    row = session.get(Webhook, webhook_id)
    return row if row is not None and row.owner_id == owner_id else None


def remove(session: Session, row: Webhook) -> None:
    """Forget a webhook, its secret and its deliveries."""
    secret = vault.find(session, row.owner_id, SECRET, row.id)
    session.delete(row)
    session.flush()
    if secret is not None:
        session.delete(secret)


# What is told


def tell_end(session: Session, run: Run) -> None:
    """Queue the end of a run for the owner's webhooks that want it; of one that was deleted nobody wants to know."""
    if run.deleted is not None:
        return
    stands = standings.of_runs(session, [run.id])[run.id]
    rewards = {
        "reward": stands.train[1].value if stands.train else None,
        "evalReward": stands.eval[1].value if stands.eval else None,
    }
    steps = {"steps": None if run.latest_step is None else run.latest_step + 1, "totalSteps": run.total_steps}
    text = f"{run.name} {_WORDS.get(run.status, run.status)}. {run.reason}".strip()
    data = {"status": run.status, "reason": run.reason, **steps, **rewards}
    _tell(session, run, ENDED, f"{run.id} {ENDED} {run.ended:.6f}", text, data)


def tell_alert(session: Session, run_id: str, message: str, alert: Mapping[str, Any], at: float) -> None:
    """Queue an alert of a run. One that rings again at the same step, as after a resumption, is not told twice."""
    run = session.get(Run, run_id)
    if run is None or time.time() - at > STALE_SECONDS:
        return
    kind, step = str(alert.get("alert") or "alert"), alert.get("step")
    shown = step + 1 if isinstance(step, int) else None
    text = f"{run.name}{'' if shown is None else f', step {shown}'}: {message}"
    data = {"alert": kind, "step": shown, "message": message, "rollouts": list(alert.get("rollouts") or ())[:10]}
    _tell(session, run, ALERT, f"{run.id} {ALERT} {kind} {step}", text, data)


def tell_test(session: Session, row: Webhook) -> Delivery:
    """Queue a message that tells of nothing, to see whether it comes through."""
    payload = {"type": TEST, "text": "A message to try this webhook, from benchmax.", "data": {}}
    return _queue(session, row, TEST, f"{TEST} {secrets.token_hex(8)}", payload)


def _tell(session: Session, run: Run, event: str, subject: str, text: str, data: Mapping[str, Any]) -> None:
    for row in of_owner(session, run.owner_id):
        if event in row.events and not _is_known(session, row, subject) and _waiting(session, row) < MOST_QUEUED:
            told = {"type": event, "text": text, "data": {"runId": run.id, "name": run.name, **data}}
            _queue(session, row, event, subject, told, run.id)


def _is_known(session: Session, row: Webhook, subject: str) -> bool:
    query = select(Delivery.id).where(Delivery.webhook_id == row.id, Delivery.subject == subject[:200])
    return session.scalars(query).first() is not None


def _waiting(session: Session, row: Webhook) -> int:
    return session.scalar(select(func.count()).where(Delivery.webhook_id == row.id, Delivery.state == "queued")) or 0


def _queue(
    session: Session, row: Webhook, event: str, subject: str, payload: dict[str, Any], run_id: str = ""
) -> Delivery:
    delivery = Delivery(webhook_id=row.id, subject=subject[:200], event=event, run_id=run_id, payload=payload)
    session.add(delivery)
    session.flush()
    _forget_old(session, row.id)
    return delivery


def _forget_old(session: Session, webhook_id: str) -> None:
    newest = select(Delivery.id).where(Delivery.webhook_id == webhook_id).order_by(Delivery.id.desc()).limit(KEPT)
    kept = set(session.scalars(newest))
    if len(kept) == KEPT:
        old = (Delivery.webhook_id == webhook_id, Delivery.state != "queued", Delivery.id < min(kept))
        session.execute(delete(Delivery).where(*old))


# Sending


def deliveries(session: Session, webhook_id: str, limit: int = KEPT) -> list[Delivery]:
    """Newest first."""
    query = select(Delivery).where(Delivery.webhook_id == webhook_id)
    return list(session.scalars(query.order_by(Delivery.id.desc()).limit(limit)))


def due(session: Session, limit: int) -> list[Delivery]:
    """What can be sent now, oldest first."""
    query = select(Delivery).where(Delivery.state == "queued", Delivery.available <= time.time())
    return list(session.scalars(query.order_by(Delivery.available, Delivery.id).limit(limit)))


def claim(session: Session, delivery: Delivery) -> bool:
    """Begin an attempt; False when another sender began it, or the webhook is gone."""
    mine = update(Delivery).where(
        Delivery.id == delivery.id, Delivery.state == "queued", Delivery.attempts == delivery.attempts
    )
    result = session.execute(mine.values(attempts=delivery.attempts + 1, available=time.time() + LEASE_SECONDS))
    return isinstance(result, CursorResult) and result.rowcount == 1


def settle(session: Session, delivery_id: int, outcome: Outcome) -> None:
    """Note how an attempt ended: delivered, given up, or to be tried again after a pause."""
    row = session.get(Delivery, delivery_id, populate_existing=True)
    if row is None or row.state != "queued":
        return
    row.answer, row.problem = outcome.answer, outcome.problem
    if outcome.problem and not outcome.final and row.attempts <= len(PAUSES):
        row.available = time.time() + PAUSES[row.attempts - 1]
        return
    row.state, row.ended = "failed" if outcome.problem else "delivered", time.time()
