"""Webhooks: addresses that are notified when a run of yours ends or raises an alert."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Query
from sqlalchemy.orm import Session

from benchmax.platform.server.error_responses import required
from benchmax.platform.server.routes.parameters import Id
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.models import check_elsewhere
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.accounts import api_keys, webhooks
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import Delivery, Webhook
from benchmax.platform.wire import webhooks as wire
from benchmax.platform.wire.base import Success

router = Router(prefix="/v1/webhooks", tags=["webhooks"])


@router.get("")
def list_webhooks(services: Services, caller: Caller) -> wire.WebhookList:
    """Your webhooks, each with the newest message to it; never their secrets."""
    with services.database.read() as db:
        found = [(row, webhooks.deliveries(db, row.id, 1)) for row in webhooks.of_owner(db, caller.user_id)]
    infos = [shape(wire.WebhookInfo, row, last=_delivery(newest[0]) if newest else None) for row, newest in found]
    return wire.WebhookList(webhooks=infos)


@router.post("", status_code=201)
def create_webhook(services: Services, caller: Caller, body: wire.WebhookRequest) -> wire.NewWebhook:
    """Notify an address of alerts and ends of your runs. The secret its messages are signed with is shown once."""
    services.limiter.hit("webhook", caller.user_id)
    check_elsewhere(services.settings, body.url, "Give the address of the service to notify.")
    with services.database.write() as db:
        api_keys.refuse_own_key(db, body.url, "")
        row, secret = webhooks.create(db, services.vault, caller.user_id, body.url, body.events)
        # Not the whole address: what follows the host is a key at some services.
        caller.note(db, "webhook.create", row.id, host=urlsplit(body.url).hostname, events=row.events)
        return shape(wire.NewWebhook, row, last=None, secret=secret)


@router.delete("/{webhook_id}")
def delete_webhook(services: Services, caller: Caller, webhook_id: Id) -> Success:
    """Forget a webhook; what still waits for it is not sent."""
    with services.database.write() as db:
        webhooks.remove(db, _own(db, caller.user_id, webhook_id))
        caller.note(db, "webhook.delete", webhook_id)
    return Success(success=True, message="The webhook is gone.")


@router.get("/{webhook_id}/deliveries")
def list_deliveries(
    services: Services,
    caller: Caller,
    webhook_id: Id,
    limit: Annotated[int, Query(ge=1, le=webhooks.DELIVERIES_KEPT)] = webhooks.DELIVERIES_KEPT,
) -> wire.WebhookDeliveries:
    """What was sent there and what came of it, newest first."""
    with services.database.read() as db:
        found = webhooks.deliveries(db, _own(db, caller.user_id, webhook_id).id, limit)
    return wire.WebhookDeliveries(deliveries=[_delivery(row) for row in found])


@router.post("/{webhook_id}/test", status_code=201)
def test_webhook(services: Services, caller: Caller, webhook_id: Id) -> wire.WebhookDelivery:
    """Send an empty message, to see whether it arrives."""
    services.limiter.hit("webhook", caller.user_id)
    with services.database.write() as db:
        return _delivery(webhooks.queue_test(db, _own(db, caller.user_id, webhook_id)))


def _own(db: Session, user_id: str, webhook_id: str) -> Webhook:
    found = get_if(db, Webhook, webhook_id, owner_id=user_id)
    return required(found, "You have no such webhook. `benchmax webhooks list` shows yours.")


def _delivery(row: Delivery) -> wire.WebhookDelivery:
    return shape(
        wire.WebhookDelivery,
        row,
        id=f"msg_{row.id}",
        run_id=row.run_id or None,
        status=row.state,
        next_attempt_at=row.available if row.state == "queued" else None,
    )
