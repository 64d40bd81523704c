"""Values that clients, server and store must agree on. It imports nothing heavy: the lightest command may read them."""

from __future__ import annotations

from typing import Literal, get_args

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""What a key may do: look; launch, upload, change and delete; manage keys, secrets and the audit log."""

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
"""What a device asks for that signs in by a code."""

RunStatus = Literal["pending", "active", "complete", "failed", "stalled", "cancelled"]
"""Of runs and of their evaluations."""
ENDED: frozenset[RunStatus] = frozenset({"complete", "failed", "stalled", "cancelled"})
"""Statuses that a run does not leave by itself."""

WebhookEvent = Literal["run.ended", "run.alert"]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)

LAST_EVENTS = frozenset({"rollout_completed", "worker_error", "error", "cancelled"})
LAST_GROUP_EVENTS = frozenset({"batch_completed", "error", "cancelled"})
"""Events that end the stream of a rollout, and of a group of them."""
