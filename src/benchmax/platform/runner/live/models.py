"""The models of this machine, in a session: by name, or a run's checkpoint, spoken aloud while it thinks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmax.envs.types import ToolDefinition
from benchmax.inference.local import LocalConversation, LocalModel, OnTokens, Sampled
from benchmax.inference.server.stream import TextStream
from benchmax.inference.tokens.chat import parse_reply
from benchmax.models.base import Sampling

ROOM: dict[str, Any] = {"slots": 8, "kv_bytes": 1024**3}
"""A session shares the machine with training: few sequences, little memory."""
NICE = 5

Say = Callable[[str], None]


def be_modest() -> None:
    """Let training go first: a lower priority, and half the cores."""
    import torch

    os.nice(NICE)
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))


def load_local(name: str) -> LocalModel:
    be_modest()
    return LocalModel.load(name, **ROOM)


def load_checkpoint(run_dir: Path, which: str, base: str) -> LocalModel:
    """A run's weights at a checkpoint, or those it began with."""
    from benchmax.trainer.opening import open_checkpoint

    if which == "base":
        return LocalModel.load(base, name="base", **ROOM)
    model = open_checkpoint(run_dir, which, **ROOM)
    model.name = model.name.rpartition(":")[2]
    return model


class SpokenModel(LocalModel):
    """A local model that tells the text of its replies while it draws them."""

    def __init__(self, model: LocalModel, say: Say) -> None:
        super().__init__(model.engine, model.chat, name=model.name)
        self._say = say
        self._tools = False

    def converse(self, *, tools: Sequence[ToolDefinition] = (), sampling: Sampling = Sampling()) -> LocalConversation:
        self._tools = bool(tools)
        return super().converse(tools=tools, sampling=sampling)

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling = Sampling(), *, on_tokens: OnTokens | None = None
    ) -> Sampled:
        loop = asyncio.get_running_loop()
        text = TextStream(self.chat, sampling.stop, tools=self._tools)

        def told(ids: list[int], logprobs: list[float]) -> None:
            loop.call_soon_threadsafe(lambda: self._tell(text.push(ids)))

        drawn = await super().complete(prompt, sampling, on_tokens=told)
        message = parse_reply(drawn.text, tools=self._tools, salt=len(prompt))
        self._tell(text.finish(str(message["content"])))
        return drawn

    def _tell(self, piece: str) -> None:
        if piece:
            self._say(piece)
