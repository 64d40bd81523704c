"""Chat completions of a local model, for everybody on the platform."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from benchmax.inference.local_model import LocalModel
from benchmax.inference.server.completions import LocalCompletions, StreamFailed
from benchmax.inference.server.openai_api import ChatRequest

Send = Callable[[Mapping[str, Any]], None]


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
