"""Models that the platform can ask: its own, and the endpoints a user named; snake_case where OpenAI's API has it."""

from __future__ import annotations

from typing import Literal

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
