"""Requests to play rollouts on the platform, streamed as they happen; snake_case, as published clients send them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from benchmax.platform.wire.base import JsonObject

_Path = Annotated[str, Field(max_length=1000)]

_URL = r"^(https?://[^\s@]+)?$"


class RolloutEnv(BaseModel):
    """The environment: two paths of uploads, or the two files in base64."""

    env_cls_path: _Path | None = None
    env_metadata_path: _Path | None = None
    env_cls_bytes: str | None = None
    env_metadata_bytes: str | None = None


DEFAULT_MODEL = "gpt-5.4-nano"
"""What a client sends when no model was named; without `base_url`, whichever the platform's own machine has."""


class RolloutLlm(BaseModel):
    """An OpenAI-compatible server; without `base_url`, a model of the platform's own machine."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    base_url: str = Field(default="", max_length=500, pattern=_URL)
    api_key: str = Field(default="", max_length=65_536)
    model: str = Field(default="", max_length=200)
    api_version: str = Field(default="", alias="api-version", max_length=40, pattern=r"^[\w.-]*$")


class RolloutOptions(BaseModel):
    max_turns: int = Field(default=4, ge=1, le=100)
    max_tool_calls: int = Field(default=8, ge=0, le=1000)
    max_completion_tokens: int = Field(default=4024, ge=1, le=131_072)
    """In one turn."""
    samples_per_example: int = Field(default=1, ge=1, le=64)


class RolloutRequest(BaseModel):
    """One example to play; `raw_example` goes through the environment's `dataset_preprocess` first."""

    standardized_example: JsonObject | None = None
    raw_example: JsonObject | None = None
    env: RolloutEnv
    llm: RolloutLlm = RolloutLlm()
    options: RolloutOptions = RolloutOptions()


class NamedModel(BaseModel):
    name: str = Field(max_length=200)


class BatchRequest(BaseModel):
    """Examples to play as groups: rows in base64 (JSON or JSON lines), or an uploaded dataset."""

    dataset_bytes: str | None = None
    is_dataset_standardized: bool = False
    concurrent_workers: int = Field(default=1, ge=1, le=32)
    env: RolloutEnv
    llm: RolloutLlm = RolloutLlm()
    options: RolloutOptions = RolloutOptions()
    # The later shape of the same call.
    dataset_path: _Path | None = None
    model: NamedModel | None = None
    split: str = Field(default="eval", max_length=40)
    max_examples: int = Field(default=64, ge=1, le=1000)
    group_size: int | None = Field(default=None, ge=1, le=64)
    max_in_flight: int | None = Field(default=None, ge=1, le=256)
    max_context_tokens: int | None = Field(default=None, ge=1)
    """Taken from clients that send it, and not used: `options` bounds a rollout's turns and tokens."""
