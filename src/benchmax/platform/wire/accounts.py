"""The wire, second part: keys, sign-in, secrets, endpoints, the audit log, corpora."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from benchmax.platform.wire.runs import JsonObject, PlainText, Time, Wire

WEB_ADDRESS = r"^https?://[^\s@]+$"


def _web_address(url: str) -> str:
    if not re.fullmatch(WEB_ADDRESS, url):
        raise ValueError(f"{url[:80]!r} is not a web address. Write it as https://host/v1, without user or password.")
    return url


class KeyRequest(Wire):
    name: PlainText = Field(default="", max_length=200)
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1, max_length=3)
    days: float | None = Field(default=None, gt=0, le=3650)
    """Until it expires; never when not given."""


class KeyInfo(Wire):
    id: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: Time
    expires_at: Time | None
    last_used_at: Time | None
    revoked: bool


class NewKey(KeyInfo):
    key: str
    """The key itself, shown only here."""


class KeyList(Wire):
    keys: list[KeyInfo]


class WhoAmI(Wire):
    id: str
    email: str
    role: str
    scopes: list[str]
    via: str
    has_password: bool = False
    """Whether a password signs this user in."""


class AuditLine(Wire):
    id: int
    created_at: Time
    user_id: str | None
    actor: str
    action: str
    target: str
    address: str
    details: dict[str, Any]


class AuditList(Wire):
    entries: list[AuditLine]


def _variable(value: str) -> str:
    if "\0" in value:
        raise ValueError("an environment variable cannot hold a zero byte. Encode it, as base64 say.")
    return value


class SecretValue(Wire):
    value: Annotated[str, AfterValidator(_variable)] = Field(min_length=1, max_length=65_536)


class SecretName(Wire):
    name: str
    created_at: Time


class SecretList(Wire):
    secrets: list[SecretName]


class EndpointRequest(Wire):
    name: PlainText = Field(min_length=1, max_length=200)
    base_url: Annotated[str, AfterValidator(_web_address)] = Field(
        max_length=500, json_schema_extra={"pattern": WEB_ADDRESS}
    )
    model: str = Field(min_length=1, max_length=200)
    api_key: str = Field(default="", max_length=65_536)


class EndpointInfo(Wire):
    id: str
    name: str
    base_url: str
    model: str
    has_key: bool
    created_at: Time


class EndpointList(Wire):
    endpoints: list[EndpointInfo]


class WebhookRequest(Wire):
    url: Annotated[str, AfterValidator(_web_address)] = Field(
        max_length=2000, json_schema_extra={"pattern": WEB_ADDRESS}
    )
    events: list[Literal["run.ended", "run.alert"]] = Field(
        default=["run.ended", "run.alert"], min_length=1, max_length=2
    )


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


class CorpusRequest(Wire):
    name: PlainText = Field(min_length=1, max_length=200)


class CorpusInfo(Wire):
    id: str
    name: str
    chunk_count: int
    created_at: Time
    updated_at: Time
    """When it last got chunks."""


class ChunkBody(Wire):
    id: PlainText | None = Field(default=None, min_length=1, max_length=200)
    content: PlainText = Field(max_length=200_000)
    metadata: JsonObject = Field(default={})


class ChunksRequest(Wire):
    chunks: list[ChunkBody] = Field(max_length=100)


class ChunksAdded(Wire):
    inserted_count: int
    chunk_ids: list[str]


class ChunkInfo(Wire):
    id: str
    content: str
    metadata: dict[str, Any]


class ChunkPage(Wire):
    results: list[ChunkInfo]
    next_cursor: str | None


class SearchRequest(Wire):
    query: str = Field(max_length=10_000)
    limit: int = Field(default=10, ge=1, le=100)
    offset: int = Field(default=0, ge=0, le=10_000)
    metadata: dict[str, Any] | None = None
    filters: dict[str, Any] | list[dict[str, Any]] | None = None
    """`{"and": […]}`, `{"or": […]}`, `{"not": …}`, `{"field", "op", "value"}`, or `{name: value}`."""


class SearchHit(ChunkInfo):
    score: float


class SearchResults(Wire):
    results: list[SearchHit]
    total: int
    query: str


class PasswordChange(Wire):
    current_password: str = Field(default="", max_length=1000)
    """Not needed by a person who signed in by link and has none."""
    new_password: str = Field(max_length=1000)


class SignOut(Wire):
    keys: bool = False
    """Revoke every API key too, but for the one this is asked with."""


class DeviceCodeRequest(BaseModel):
    client_id: str = Field(default="castform-cli", max_length=100)


class DeviceCodeAnswer(BaseModel):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class DeviceTokenRequest(BaseModel):
    grant_type: str = Field(max_length=100)
    device_code: str = Field(max_length=200)
    client_id: str = Field(default="castform-cli", max_length=100)


class DeviceToken(BaseModel):
    access_token: str
    token_type: str = "Bearer"
    expires_in: int


class DeviceApproval(Wire):
    user_code: str = Field(max_length=20)
    approve: bool = True


class DeviceWaiting(Wire):
    """A device that asks to act as you."""

    user_code: str
    client_id: str
    address: str
    created_at: Time
    expires_at: Time


class TokenAnswer(BaseModel):
    token: str
