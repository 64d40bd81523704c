"""What answers a prompt. Start reading at `base`, the port that every model implements.

base            `ModelClient`, `Conversation`, `Sampling`
registry        what `--model x` means: the only place that decides
http            any OpenAI-compatible server; `chat_api` is its requests and replies, `http_errors` what goes
                wrong, `text_tools` writes tools as text for servers that do not parse tool calls
relay           where the platform's models are reached from inside a sandbox
endpoints       a server that a user of the platform named; `address_rules` decides what may be connected to
openai_error_bodies  errors as the OpenAI API reports them, for the servers of benchmax
scripted        a model whose answers are given in advance

Models that run on this machine are in `benchmax.inference`, above this room.
"""

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
