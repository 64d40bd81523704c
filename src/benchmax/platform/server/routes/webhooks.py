"""Webhooks: addresses that are notified when a run of yours ends or raises an alert."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Path, Query
from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.models.address_rules import AddressRules, check_literal
from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.services.live_sessions import reach_of
from benchmax.platform.server.services.models import is_here
from benchmax.platform.server.state import Services
from benchmax.platform.server.threads import Router
from benchmax.platform.store.accounts import users, webhooks
from benchmax.platform.store.tables import Delivery, Webhook
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.webhooks import (
    NewWebhook,
    WebhookDeliveries,
    WebhookDelivery,
    WebhookInfo,
    WebhookList,
    WebhookRequest,
)

router = Router(prefix="/v1/webhooks", tags=["webhooks"])

WebhookId = Annotated[str, Path(max_length=80)]


@router.get("")
def list_webhooks(services: Services, caller: Caller) -> WebhookList:
    """Your webhooks, each with the newest message to it; never their secrets."""
    with services.database.read() as db:
        return WebhookList(webhooks=[_info(db, row) for row in webhooks.of_owner(db, caller.user_id)])


@router.post("", status_code=201)
def create_webhook(services: Services, caller: Caller, body: WebhookRequest) -> NewWebhook:
    """Notify an address of alerts and ends of your runs. The secret its messages are signed with is shown once."""
    services.limiter.hit("webhook", caller.user_id)
    check_literal(body.url, AddressRules.of(reach_of(services.settings)))
    if is_here(services.settings, body.url):
        raise UsageError("This is the platform's own address. Give the address of the service to notify.")
    with services.database.write() as db:
        users.refuse_own_key(db, body.url, "")
        row, secret = webhooks.create(db, services.vault, caller.user_id, body.url, body.events)
        # Not the whole address: what follows the host is a key at some services.
        caller.note(db, "webhook.create", row.id, host=urlsplit(body.url).hostname, events=row.events)
        return NewWebhook(**dict(_info(db, row)), secret=secret)


@router.delete("/{webhook_id}")
def delete_webhook(services: Services, caller: Caller, webhook_id: WebhookId) -> Success:
    """Forget a webhook; what still waits for it is not sent."""
    with services.database.write() as db:
        webhooks.remove(db, _own(db, caller.user_id, webhook_id))
        caller.note(db, "webhook.delete", webhook_id)
    return Success(success=True, message="The webhook is gone.")


@router.get("/{webhook_id}/deliveries")
def list_deliveries(
    services: Services,
    caller: Caller,
    webhook_id: WebhookId,
    limit: Annotated[int, Query(ge=1, le=webhooks.KEPT)] = webhooks.KEPT,
) -> WebhookDeliveries:
    """What was sent there and what came of it, newest first."""
    with services.database.read() as db:
        found = webhooks.deliveries(db, _own(db, caller.user_id, webhook_id).id, limit)
    return WebhookDeliveries(deliveries=[_delivery(row) for row in found])


@router.post("/{webhook_id}/test", status_code=201)
def test_webhook(services: Services, caller: Caller, webhook_id: WebhookId) -> WebhookDelivery:
    """Send an empty message, to see whether it arrives."""
    services.limiter.hit("webhook", caller.user_id)
    with services.database.write() as db:
        return _delivery(webhooks.queue_test(db, _own(db, caller.user_id, webhook_id)))


def _own(db: Session, user_id: str, webhook_id: str) -> Webhook:
    row = webhooks.find(db, user_id, webhook_id)
    if row is None:
        raise Refused(404, "You have no such webhook. `benchmax webhooks list` shows yours.")
    return row


def _info(db: Session, row: Webhook) -> WebhookInfo:
    newest = webhooks.deliveries(db, row.id, 1)
    last = _delivery(newest[0]) if newest else None
    return WebhookInfo(id=row.id, url=row.url, events=row.events, created_at=row.created, last=last)


def _delivery(row: Delivery) -> WebhookDelivery:
    return WebhookDelivery.model_validate(
        {
            "id": f"msg_{row.id}",
            "event": row.event,
            "run_id": row.run_id or None,
            "status": row.state,
            "attempts": row.attempts,
            "created_at": row.created,
            "ended_at": row.ended,
            "next_attempt_at": row.available if row.state == "queued" else None,
            "answer": row.answer,
            "problem": row.problem,
        }
    )
