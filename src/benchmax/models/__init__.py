"""What answers a prompt: any OpenAI-compatible server, or a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmax.models.base import Conversation, FinishReason, ModelClient, Reply, Sampling, TokenSegment, Usage
from benchmax.models.scripted import ScriptedModel

if TYPE_CHECKING:
    from benchmax.models.http import HttpModel

__all__ = [
    "Conversation",
    "FinishReason",
    "HttpModel",
    "ModelClient",
    "Reply",
    "Sampling",
    "ScriptedModel",
    "TokenSegment",
    "Usage",
]


def __getattr__(name: str) -> Any:
    # aiohttp takes 100 ms and more to import; only HttpModel needs it.
    if name == "HttpModel":
        from benchmax.models.http import HttpModel

        return HttpModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
