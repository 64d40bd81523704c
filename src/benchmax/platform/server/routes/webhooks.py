"""Webhooks: where you want to be told when a run of yours ends or needs a look."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.models.address_rules import AddressRules, check_literal
from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.auth import Caller
from benchmax.platform.server.services.live_sessions import reach_of
from benchmax.platform.server.services.models import is_here
from benchmax.platform.server.state import Here
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

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

WebhookId = Annotated[str, Path(max_length=80)]


@router.get("")
def list_webhooks(here: Here, caller: Caller) -> WebhookList:
    """Your webhooks, each with the newest message to it; never their secrets."""
    with here.database.read() as session:
        return WebhookList(webhooks=[_info(session, row) for row in webhooks.of_owner(session, caller.user_id)])


@router.post("", status_code=201)
def create_webhook(here: Here, caller: Caller, body: WebhookRequest) -> NewWebhook:
    """Have an address told of alerts and ends of your runs. The secret its messages are signed with is shown once."""
    here.limiter.hit("webhook", caller.user_id)
    check_literal(body.url, AddressRules.of(reach_of(here.settings)))
    if is_here(here.settings, body.url):
        raise UsageError("This is the platform's own address. Give one of a service that wants to be told.")
    with here.database.write() as session:
        users.refuse_own_key(session, body.url, "")
        row, secret = webhooks.create(session, here.vault, caller.user_id, body.url, body.events)
        # Not the whole address: what follows the host is a key at some services.
        caller.note(session, "webhook.create", row.id, host=urlsplit(body.url).hostname, events=row.events)
        return NewWebhook(**dict(_info(session, row)), secret=secret)


@router.delete("/{webhook_id}")
def delete_webhook(here: Here, caller: Caller, webhook_id: WebhookId) -> Success:
    """Forget a webhook; what still waits for it is not sent."""
    with here.database.write() as session:
        webhooks.remove(session, _own(session, caller.user_id, webhook_id))
        caller.note(session, "webhook.delete", webhook_id)
    return Success(success=True, message="The webhook is gone.")


@router.get("/{webhook_id}/deliveries")
def list_deliveries(
    here: Here,
    caller: Caller,
    webhook_id: WebhookId,
    limit: Annotated[int, Query(ge=1, le=webhooks.KEPT)] = webhooks.KEPT,
) -> WebhookDeliveries:
    """What was sent there and what came of it, newest first."""
    with here.database.read() as session:
        found = webhooks.deliveries(session, _own(session, caller.user_id, webhook_id).id, limit)
    return WebhookDeliveries(deliveries=[_delivery(row) for row in found])


@router.post("/{webhook_id}/test", status_code=201)
def test_webhook(here: Here, caller: Caller, webhook_id: WebhookId) -> WebhookDelivery:
    """Send a message that tells of nothing, to see whether it comes through."""
    here.limiter.hit("webhook", caller.user_id)
    with here.database.write() as session:
        return _delivery(webhooks.tell_test(session, _own(session, caller.user_id, webhook_id)))


def _own(session: Session, user_id: str, webhook_id: str) -> Webhook:
    row = webhooks.find(session, user_id, webhook_id)
    if row is None:
        raise Refused(404, "You have no such webhook. `benchmax webhooks list` shows yours.")
    return row


def _info(session: Session, row: Webhook) -> WebhookInfo:
    newest = webhooks.deliveries(session, row.id, 1)
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
