"""Webhooks and what was delivered to them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from benchmax.platform.wire.base import Time, WebAddress, Wire
from benchmax.platform.wire.values import WEBHOOK_EVENTS, WebhookEvent


class WebhookRequest(Wire):
    url: WebAddress = Field(max_length=2000)
    events: list[WebhookEvent] = Field(default=[*WEBHOOK_EVENTS], min_length=1, max_length=2)


class WebhookInfo(Wire):
    id: str
    url: str
    events: list[str]
    created_at: Time
    last: WebhookDelivery | None
    """The newest message to it."""


class NewWebhook(WebhookInfo):
    secret: str
    """What its messages are signed with, shown only here."""


class WebhookList(Wire):
    webhooks: list[WebhookInfo]


class WebhookDelivery(Wire):
    id: str
    """As the message has it in `webhook-id`."""
    event: str
    run_id: str | None
    status: Literal["queued", "delivered", "failed"]
    attempts: int
    created_at: Time
    ended_at: Time | None
    next_attempt_at: Time | None
    answer: int | None
    """The HTTP status of the last attempt; None when nothing answered."""
    problem: str


class WebhookDeliveries(Wire):
    deliveries: list[WebhookDelivery]
    """Newest first."""
