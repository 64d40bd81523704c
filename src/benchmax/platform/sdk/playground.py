"""Talking with a run's model from Python, in its environment.

with trainer.run(run_id).playground(checkpoint="best") as session:
    for event in session.say("What is 2+3?"):
        print(event)
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.transport import failure, in_threads

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import TrainerClient

_PATH = "/v1/playground/sessions"
_SILENCE_SECONDS = 60.0
"""The platform says something every ten seconds, if only that it is there."""


class PlaygroundSession:
    """A chat with one checkpoint. It opens in the background; the first `say` waits for it. Close it after use."""

    def __init__(
        self,
        client: TrainerClient,
        run_id: str,
        *,
        checkpoint: str = "latest",
        environment: bool = True,
        example_id: str | None = None,
    ) -> None:
        self._client = client
        body = {"runId": run_id, "checkpoint": checkpoint, "environment": environment, "exampleId": example_id}
        self.id: str = client._json("POST", _PATH, json=body)["id"]

    @property
    def info(self) -> dict[str, Any]:
        """`{id, status, statusReason, systemPrompt, tools, …}` as the platform tells it now."""
        found: dict[str, Any] = self._client._get(f"{_PATH}/{self.id}")
        return found

    def wait(self, seconds: float = 1_200.0, poll: float = 0.25) -> dict[str, Any]:
        """Wait until the session is ready, and give its `info`; TrainerError with the reason when it ended."""
        deadline = time.monotonic() + seconds
        while (info := self.info)["status"] == "starting":
            if time.monotonic() + poll > deadline:
                raise TimeoutError(f"The session is not ready yet: {info['statusReason']}. Wait longer.")
            time.sleep(poll)
        if info["status"] == "ended":
            raise TrainerError(f"The session has ended: {info['statusReason']}")
        return info

    def say(
        self,
        text: str = "",
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> Generator[dict[str, Any]]:
        """What follows, event by event: `token`, `message`, `reward`, `done`. An `error` is raised as TrainerError.

        Stop iterating and the platform stops too; the turn is then forgotten. With an example, say nothing at first
        to have its prompt played.
        """
        body = {"content": text, "temperature": temperature, "maxTokens": max_tokens, "seed": seed}
        for event in self._events(body):
            if event["event"] == "error":
                raise TrainerError(str(event["message"]))
            yield event
            if event["event"] == "done":
                return
        raise TrainerError("The stream ended before the turn did. Try again.")

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        import httpx2

        headers = {"Authorization": f"Bearer {self._client._token()}"}
        url = f"{self._client.base_url}{_PATH}/{self.id}/messages"
        try:
            with self._client._http.stream("POST", url, json=body, headers=headers, timeout=_SILENCE_SECONDS) as answer:
                if not answer.is_success:
                    answer.read()
                    raise failure(answer)
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line[6:])
        except (httpx2.TransportError, ValueError) as error:
            raise TrainerError(f"The stream broke off: {error or type(error).__name__}. Try again.") from error

    def close(self) -> None:
        """End the session and its processes."""
        self._client._json("DELETE", f"{_PATH}/{self.id}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PlaygroundSession({self.id!r})"


class AsyncPlaygroundSession:
    """The same for async code; `say` is an async iterator."""

    def __init__(self, session: PlaygroundSession) -> None:
        self.sync = session
        self.id = session.id

    async def wait(self, seconds: float = 1_200.0, poll: float = 0.25) -> dict[str, Any]:
        return await asyncio.to_thread(self.sync.wait, seconds, poll)

    async def say(self, text: str = "", **options: Any) -> AsyncIterator[dict[str, Any]]:
        async with aclosing(in_threads(self.sync.say(text, **options))) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await asyncio.to_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncPlaygroundSession({self.id!r})"
