"""Chats with a run's checkpoint in the playground."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from benchmax.platform.wire.base import PlainText, Wire


class SessionRequest(Wire):
    """A chat with a run's checkpoint, in its environment or without."""

    run_id: str = Field(max_length=80)
    checkpoint: str = Field(default="best", max_length=80, pattern=r"^(base|latest|best|step-\d{1,9})$")
    environment: bool = True
    example_id: str | None = Field(default=None, max_length=200)
    """Play this example of the run's rows: its prompt comes first, and answers are scored."""


class SessionOpened(Wire):
    id: str
    status: Literal["starting", "ready", "ended"]


class ToolInfo(Wire):
    name: str
    description: str
    input_schema: dict[str, Any] | None = None


class SessionInfo(SessionOpened):
    status_reason: str
    run_id: str
    checkpoint: str
    system_prompt: str
    tools: list[ToolInfo]
    prompt_messages: list[dict[str, Any]]
    """The prompt of the example, if one was chosen."""


class Say(Wire):
    """What to say; may be empty at first, when an example was chosen."""

    content: PlainText = Field(default="", max_length=1_000_000)
    own: bool = False
    """At first: ask this in place of the chosen example's question, after the same worked examples, unscored."""
    temperature: float | None = Field(default=None, ge=0, le=10)
    max_tokens: int | None = Field(default=None, ge=1, le=131_072)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
