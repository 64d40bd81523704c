"""The local models of a live session: by name, or a run's checkpoint, streamed while it is sampled."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from benchmax.envs.types import ToolDefinition
from benchmax.inference.engine.request import OnTokens
from benchmax.inference.local_model import LocalModel
from benchmax.inference.server.completions import LocalCompletions, StreamFailed
from benchmax.inference.server.openai_api import ChatRequest
from benchmax.inference.server.stream import TextStream
from benchmax.inference.tokens.chat import parse_reply
from benchmax.inference.tokens.token_model import Sampled, TokenConversation
from benchmax.models.base import Sampling

LIMITS: dict[str, Any] = {"slots": 8, "kv_bytes": 1024**3}
"""A session shares the machine with training: few sequences, little memory."""
NICE = 5

OnText = Callable[[str], None]
Send = Callable[[Mapping[str, Any]], None]


def lower_priority() -> None:
    """Let training go first: with a lower priority and half the cores."""
    import torch

    os.nice(NICE)
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))


def load_local(name: str) -> LocalModel:
    """A model of the store. Not opened by `open_local`, which also finds runs and does not check who may read them."""
    lower_priority()
    return LocalModel.load(name, **LIMITS)


def load_checkpoint(run_dir: Path, which: str, base: str) -> LocalModel:
    """A run's weights at a checkpoint, or those it began with."""
    from benchmax.trainer.open_checkpoint import BASE, open_run_model

    model = open_run_model(run_dir, which, base, **LIMITS)
    model.name = BASE if which == BASE else model.name.rpartition(":")[2]
    return model


class StreamedModel(LocalModel):
    """A local model that passes on the text of its replies while it samples them."""

    def __init__(self, model: LocalModel, on_text: OnText) -> None:
        super().__init__(model.engine, model.chat, name=model.name)
        self._on_text = on_text
        self._tools = False

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> TokenConversation:
        self._tools = bool(tools)
        return super().converse(tools=tools, sampling=sampling)

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling = Sampling(), *, on_tokens: OnTokens | None = None
    ) -> Sampled:
        loop = asyncio.get_running_loop()
        text = TextStream(self.chat, sampling.stop, tools=self._tools)

        def pass_on(ids: list[int], logprobs: list[float]) -> None:
            loop.call_soon_threadsafe(lambda: self._send(text.push(ids)))

        drawn = await super().complete(prompt, sampling, on_tokens=pass_on)
        message = parse_reply(drawn.text, tools=self._tools, salt=len(prompt))
        self._send(text.finish(str(message["content"])))
        return drawn

    def _send(self, piece: str) -> None:
        if piece:
            self._on_text(piece)


class Completions:
    """Answers requests of the OpenAI API: `{"reply"}` or `{"chunk"}…`; `{"status", "error"}` for a failure."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._completions = LocalCompletions(model)

    def about(self) -> dict[str, Any]:
        return {"model": self._model.name}

    async def answer(self, request: Mapping[str, Any], send: Send) -> None:
        try:
            chat = ChatRequest.read(json.dumps(request["body"]).encode())
            if not chat.stream:
                send({"reply": await self._completions.whole(chat)})
                return
            async with aclosing(self._completions.stream(chat)) as chunks:
                async for chunk in chunks:
                    send({"chunk": chunk})
        except StreamFailed as failed:
            send({"status": 500, "error": failed.body})
        except Exception as error:
            status, body = self._completions.failure(error)
            send({"status": status, "error": body})
