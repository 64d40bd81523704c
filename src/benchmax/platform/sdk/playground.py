"""Chatting with a run's model from Python, in its environment.

with trainer.run(run_id).playground(checkpoint="best") as session:
    for event in session.say("What is 2+3?"):
        print(event)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from benchmax.platform.sdk.calls import (
    EventStream,
    Request,
    Row,
    as_object,
    delete,
    get,
    iterate_blocking,
    post_for,
    run_blocking,
)
from benchmax.platform.sdk.exceptions import TrainerError

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import AsyncTrainerClient, TrainerClient
    from benchmax.platform.sdk.transport import Exchange

_PATH = "/v1/playground/sessions"
_SILENCE_SECONDS = 60.0
"""The platform sends something every ten seconds, if only that it is there."""


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
        self.id = run_blocking(client._exchange.ask(_open(run_id, checkpoint, environment, example_id)))

    @property
    def info(self) -> Row:
        """`{id, status, statusReason, systemPrompt, tools, …}` as of now."""
        return run_blocking(self._client._exchange.ask(_info(self.id)))

    def wait(self, seconds: float = 1_200.0, poll: float = 0.25) -> Row:
        """Wait until the session is ready; returns its `info`. TrainerError with the reason when it ended."""
        return run_blocking(_wait(self._client._exchange, self.id, seconds, poll))

    def say(
        self,
        text: str = "",
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> Generator[Row]:
        """What follows, event by event: `token`, `message`, `reward`, `done`. An `error` is raised as TrainerError.

        Stop iterating and the platform stops too; the turn is then forgotten. With an example, say nothing at first
        to have its prompt played.
        """
        yield from iterate_blocking(_say(self._client._exchange, self.id, text, temperature, max_tokens, seed))

    def close(self) -> None:
        """End the session and its processes, unless it has ended."""
        run_blocking(_close(self._client._exchange, self.id))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PlaygroundSession({self.id!r})"


class AsyncPlaygroundSession:
    """The same for async code; `say` is an async iterator."""

    def __init__(self, client: AsyncTrainerClient, session_id: str) -> None:
        self._client = client
        self.id = session_id

    @classmethod
    async def open(
        cls,
        client: AsyncTrainerClient,
        run_id: str,
        *,
        checkpoint: str = "latest",
        environment: bool = True,
        example_id: str | None = None,
    ) -> Self:
        """A new session."""
        return cls(client, await client._exchange.ask(_open(run_id, checkpoint, environment, example_id)))

    async def info(self) -> Row:
        """`{id, status, statusReason, systemPrompt, tools, …}` as of now."""
        return await self._client._exchange.ask(_info(self.id))

    async def wait(self, seconds: float = 1_200.0, poll: float = 0.25) -> Row:
        """Wait until the session is ready; returns its `info`. TrainerError with the reason when it ended."""
        return await _wait(self._client._exchange, self.id, seconds, poll)

    async def say(
        self,
        text: str = "",
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> AsyncGenerator[Row]:
        """What follows, event by event; see `PlaygroundSession.say`."""
        turn = _say(self._client._exchange, self.id, text, temperature, max_tokens, seed)
        async with aclosing(turn) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """End the session and its processes, unless it has ended."""
        await _close(self._client._exchange, self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncPlaygroundSession({self.id!r})"


def _open(run_id: str, checkpoint: str, environment: bool, example_id: str | None) -> Request[str]:
    body = {"runId": run_id, "checkpoint": checkpoint, "environment": environment, "exampleId": example_id}
    return post_for("id", _PATH, body)


def _info(session_id: str) -> Request[Row]:
    return get(f"{_PATH}/{session_id}", as_object)


async def _close(exchange: Exchange, session_id: str) -> None:
    try:
        await exchange.ask(delete(f"{_PATH}/{session_id}"))
    except TrainerError as error:
        if error.status_code != 404:  # the platform forgets sessions some time after their end
            raise


async def _wait(exchange: Exchange, session_id: str, seconds: float, poll: float) -> Row:
    info = await exchange.poll(_info(session_id), lambda info: info["status"] != "starting", poll, seconds)
    if info["status"] == "starting":
        raise TimeoutError(f"The session is not ready yet: {info['statusReason']}. Wait longer.")
    if info["status"] == "ended":
        raise TrainerError(f"The session has ended: {info['statusReason']}")
    return info


async def _say(
    exchange: Exchange,
    session_id: str,
    text: str,
    temperature: float | None,
    max_tokens: int | None,
    seed: int | None,
) -> AsyncGenerator[Row]:
    body = {"content": text, "temperature": temperature, "maxTokens": max_tokens, "seed": seed}
    stream = EventStream("POST", f"{_PATH}/{session_id}/messages", json=body, timeout=_SILENCE_SECONDS)
    async with aclosing(exchange.events(stream)) as events:
        async for event in events:
            if event["event"] == "error":
                raise TrainerError(str(event["message"]))
            yield event
            if event["event"] == "done":
                return
    raise TrainerError("The stream ended before the turn did. Try again.")
