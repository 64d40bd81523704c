"""Chatting with a run's model from Python, in its environment.

with trainer.run(run_id).playground(checkpoint="best") as session:
    for event in session.say("What is 2+3?"):
        print(event)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from benchmax.platform.sdk.calls import (
    Awaiting,
    Blocking,
    EventStream,
    Request,
    Row,
    as_object,
    delete,
    get,
    post_for,
    run_blocking,
)
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.sync_and_async import iterator, procedure

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import AsyncTrainerClient, TrainerClient
    from benchmax.platform.sdk.transport import Exchange

_PATH = "/v1/playground/sessions"
_SILENCE_SECONDS = 60.0
"""The platform sends something every ten seconds, if only that it is there."""


class _Session:
    """What both kinds of session share."""

    id: str
    _exchange: Exchange

    @procedure
    async def wait(self, seconds: float = 1_200.0, poll: float = 0.25) -> Row:
        """Wait until the session is ready; returns its `info`. TrainerError with the reason when it ended."""
        info = await self._exchange.poll(_info(self.id), lambda info: info["status"] != "starting", poll, seconds)
        if info["status"] == "starting":
            raise TimeoutError(f"The session is not ready yet: {info['statusReason']}. Wait longer.")
        if info["status"] == "ended":
            raise TrainerError(f"The session has ended: {info['statusReason']}")
        return info

    @iterator
    async def say(
        self,
        text: str = "",
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> AsyncGenerator[Row]:
        """What follows, event by event: `token`, `message`, `reward`, `done`. An `error` is raised as TrainerError.

        Stop iterating and the platform stops too; the turn is then forgotten. With an example, say nothing at first
        to have its prompt played.
        """
        body = {"content": text, "temperature": temperature, "maxTokens": max_tokens, "seed": seed}
        stream = EventStream("POST", f"{_PATH}/{self.id}/messages", json=body, timeout=_SILENCE_SECONDS)
        async with aclosing(self._exchange.events(stream)) as events:
            async for event in events:
                if event["event"] == "error":
                    raise TrainerError(str(event["message"]))
                yield event
                if event["event"] == "done":
                    return
        raise TrainerError("The stream ended before the turn did. Try again.")

    async def _close(self) -> None:
        """End the session and its processes, unless it has ended."""
        try:
            await self._exchange.ask(delete(f"{_PATH}/{self.id}"))
        except TrainerError as error:
            if error.status_code != 404:  # the platform forgets sessions some time after their end
                raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


class PlaygroundSession(_Session, Blocking):
    """A chat with one checkpoint. It opens in the background; the first `say` waits for it. Close it after use."""

    def __init__(
        self,
        client: TrainerClient,
        run_id: str,
        *,
        checkpoint: str = "best",
        environment: bool = True,
        example_id: str | None = None,
    ) -> None:
        self._exchange = client._exchange
        self.id = run_blocking(self._exchange.ask(_open(run_id, checkpoint, environment, example_id)))

    @property
    def info(self) -> Row:
        """`{id, status, statusReason, systemPrompt, tools, …}` as of now."""
        return run_blocking(self._exchange.ask(_info(self.id)))

    def close(self) -> None:
        """End the session and its processes, unless it has ended."""
        run_blocking(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncPlaygroundSession(_Session, Awaiting):
    """The same for async code; `say` is an async iterator."""

    def __init__(self, client: AsyncTrainerClient, session_id: str) -> None:
        self._exchange = client._exchange
        self.id = session_id

    @classmethod
    async def open(
        cls,
        client: AsyncTrainerClient,
        run_id: str,
        *,
        checkpoint: str = "best",
        environment: bool = True,
        example_id: str | None = None,
    ) -> Self:
        """A new session."""
        return cls(client, await client._exchange.ask(_open(run_id, checkpoint, environment, example_id)))

    async def info(self) -> Row:
        """`{id, status, statusReason, systemPrompt, tools, …}` as of now."""
        return await self._exchange.ask(_info(self.id))

    async def aclose(self) -> None:
        """End the session and its processes, unless it has ended."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _open(run_id: str, checkpoint: str, environment: bool, example_id: str | None) -> Request[str]:
    body = {"runId": run_id, "checkpoint": checkpoint, "environment": environment, "exampleId": example_id}
    return post_for("id", _PATH, body)


def _info(session_id: str) -> Request[Row]:
    return get(f"{_PATH}/{session_id}", as_object)
