"""Models that the platform can ask: its own, and the endpoints a user named; snake_case where OpenAI's API has it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchmax.platform.wire.base import JsonObject, PlainText, Time, WebAddress, Wire


class EndpointRequest(Wire):
    name: PlainText = Field(min_length=1, max_length=200)
    base_url: WebAddress = Field(max_length=500)
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


class ChatBody(BaseModel):
    """A chat to answer; what else the OpenAI API knows is passed on to the model."""

    model_config = ConfigDict(extra="allow")

    messages: list[JsonObject] = Field(min_length=1, max_length=100_000)
    model: str = Field(default="", max_length=200)
    stream: bool = False


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class ModelCards(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class ModelSessionRequest(BaseModel):
    """A model to ask at an address of its own, where every call is recorded."""

    model: str = Field(default="", max_length=200)
    max_context_tokens: int | None = Field(default=None, ge=1, le=2**31)
    """Most tokens of a conversation with its reply, where the model takes more."""
    ttl_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How long the session lasts; at most a day, whatever is asked for."""


class ModelSessionInfo(BaseModel):
    id: str
    model: str
    """Who answers."""
    note: str = ""
    """Whom it replaces, when another was asked for."""
    max_context_tokens: int | None
    created_at: Time
    expires_at: Time


class ModelSessionOpened(ModelSessionInfo):
    session_key: str
    """The bearer key of this session and of nothing else; shown now and never again."""
    base_url: str
    """What a client of the OpenAI API takes as its address."""


class RecordedCall(BaseModel):
    """One chat completion of a session: what was asked, and what came of it."""

    index: int
    """Its place among the session's calls, from 0."""
    created_at: Time
    seconds: float
    stream: bool
    asked_model: str
    model: str | None
    messages: list[JsonObject]
    tools: list[Any]
    sampling: dict[str, Any]
    """Everything else that was asked for: `temperature`, `max_tokens` and the like."""
    message: dict[str, Any] | None
    finish_reason: str | None
    choices: list[dict[str, Any]]
    """All answers, where more than one was asked for."""
    usage: dict[str, Any] | None
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None
    """Those of the answer; both from models of the platform's machine."""
    error: dict[str, Any] | None
    """`status`, `message` and `code`, when it failed."""
    left_out: bool = False
    """What was asked and answered is too large to be kept, or cannot be written as JSON."""


class ModelSessionRecord(ModelSessionInfo):
    call_count: int
    """Those under way, and those no longer kept, included."""
    truncated: bool
    """The oldest calls were dropped, or something was left out of one."""
    calls: list[RecordedCall]
