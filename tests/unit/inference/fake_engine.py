"""An engine that says what it is told, token by token, through the real engine's hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmax.inference.engine.sampling import Generation, SamplingParams


class FakeEngine:
    """Each call takes the next script: ids, or an exception to raise. A missing stop token means cut at the limit."""

    def __init__(self, *scripts: Sequence[int] | Exception, gate: asyncio.Event | None = None) -> None:
        self.scripts = list(scripts)
        self.prompts: list[list[int]] = []
        self.params: list[SamplingParams] = []
        self.gate = gate
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.closed = False
        self.max_len = 1 << 20
        self.trouble = ""

    def stats(self) -> dict[str, int]:
        return {"active": 0, "queued": 0}

    async def generate(self, prompt_ids, params, *, should_stop=None, on_tokens=None) -> Generation:
        self.prompts.append(list(prompt_ids))
        self.params.append(params)
        self.started.set()
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if isinstance(script, Exception):
            raise script
        ids: list[int] = []
        finish = "length"
        try:
            for token in script[: params.max_tokens]:
                ids.append(token)
                if on_tokens:
                    await asyncio.to_thread(on_tokens, [token], [-0.5])  # the real one calls from its own thread
                if token in params.stop_token_ids or (should_stop and should_stop(ids)):
                    finish = "stop"
                    break
                if self.gate:
                    await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Generation(ids, [-0.5] * len(ids), finish)

    def close(self) -> None:
        self.closed = True
