"""Users, API keys, passwords, model endpoints, secrets and webhooks."""

from __future__ import annotations

from collections.abc import Sequence

from benchmax.platform.sdk.calls import Request, Row, as_object, delete, get, part_of_path, post, rows_in
from benchmax.platform.wire.values import WEBHOOK_EVENTS


def whoami() -> Request[Row]:
    """Who you are to the platform, and your key's `scopes`."""
    return get("/v1/whoami", as_object)


def list_keys() -> Request[list[Row]]:
    """Your API keys, never their text."""
    return get("/v1/keys", rows_in("keys"))


def create_key(name: str = "", *, scopes: Sequence[str] = ("read", "write"), days: float | None = None) -> Request[Row]:
    """Make an API key that ends after so many days, or never; `key` is in this answer alone."""
    return post("/v1/keys", {"name": name, "scopes": list(scopes), "days": days})


def revoke_key(key_id: str) -> Request[Row]:
    """Revoke an API key for good."""
    return delete(f"/v1/keys/{part_of_path(key_id)}")


def list_users() -> Request[list[Row]]:
    """Everyone, for an administrator; yourself, for others."""
    return get("/v1/users", rows_in("users"))


def create_user(name: str, password: str, *, role: str = "member") -> Request[Row]:
    """Add a user, as an administrator."""
    return post("/v1/users", {"name": name, "password": password, "role": role})


def delete_user(user_id: str) -> Request[Row]:
    """Remove a user, and delete their runs."""
    return delete(f"/v1/users/{part_of_path(user_id)}")


def change_password(current: str, new: str) -> Request[Row]:
    """Change your own password; every sign-in in a browser ends, keys stay."""
    return post("/v1/password", {"currentPassword": current, "newPassword": new})


def sign_out_everywhere(*, keys: bool = False) -> Request[Row]:
    """End every sign-in of yours in a browser; with `keys`, revoke every other API key too."""
    return post("/v1/sign-out", {"keys": keys})


def list_endpoints() -> Request[list[Row]]:
    """Your model servers, without their keys."""
    return get("/v1/endpoints", rows_in("endpoints"))


def create_endpoint(name: str, base_url: str, model: str, *, api_key: str = "") -> Request[Row]:
    """Name an OpenAI-compatible server; its `id` makes `endpoint:ID`. The key is kept encrypted."""
    return post("/v1/endpoints", {"name": name, "baseUrl": base_url, "model": model, "apiKey": api_key})


def delete_endpoint(endpoint_id: str) -> Request[Row]:
    """Forget a model server and its key."""
    return delete(f"/v1/endpoints/{part_of_path(endpoint_id)}")


def list_secrets() -> Request[list[Row]]:
    """Names of your secrets; values are never returned."""
    return get("/v1/secrets", rows_in("secrets"))


def set_secret(name: str, value: str) -> Request[Row]:
    """Store or replace a secret; your runs get it as an environment variable."""
    return Request("PUT", f"/v1/secrets/{part_of_path(name)}", as_object, json={"value": value})


def delete_secret(name: str) -> Request[Row]:
    """Delete a secret."""
    return delete(f"/v1/secrets/{part_of_path(name)}")


def list_webhooks() -> Request[list[Row]]:
    """Addresses that are notified of your runs, each with the newest message to it; never their secrets."""
    return get("/v1/webhooks", rows_in("webhooks"))


def create_webhook(url: str, *, events: Sequence[str] = WEBHOOK_EVENTS) -> Request[Row]:
    """Notify an address of alerts and ends of your runs; `secret`, which signs them, is in this answer alone."""
    return post("/v1/webhooks", {"url": url, "events": list(events)})


def delete_webhook(webhook_id: str) -> Request[Row]:
    """Delete a webhook."""
    return delete(f"/v1/webhooks/{part_of_path(webhook_id)}")


def test_webhook(webhook_id: str) -> Request[Row]:
    """Send a message without content; `list_webhook_deliveries` shows what comes of it."""
    return post(f"/v1/webhooks/{part_of_path(webhook_id)}/test")


def list_webhook_deliveries(webhook_id: str) -> Request[list[Row]]:
    """What was sent there and what came of it, newest first."""
    return get(f"/v1/webhooks/{part_of_path(webhook_id)}/deliveries", rows_in("deliveries"))
