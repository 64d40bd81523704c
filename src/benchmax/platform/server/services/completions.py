"""Chat completions by the platform's models: one of this machine answers in a live session, an endpoint over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

from fastapi.responses import JSONResponse, Response

from benchmax.errors import ModelProtocolError, ModelUnavailable
from benchmax.files.atomic import object_in
from benchmax.models.openai_error_bodies import error_body, error_response
from benchmax.net import sse
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.event_response import event_response
from benchmax.platform.server.services.live_sessions import SessionBroken
from benchmax.platform.server.services.models import ChosenModel

_BROKE_OFF = "The model broke off. Try again."

Gone: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether the client has disconnected."""


class Refusal(Exception):
    """An answer that is an error, in the API's own shape."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(status)
        self.status = status
        self.body = dict(body)


async def answer(services: Services, chosen: ChosenModel, body: Mapping[str, Any], gone: Gone) -> Response:
    """The chosen model's answer, whole or streamed; `model` names who answers, `note` whom it replaces."""
    headers = {"X-Benchmax-Model": _header(chosen.model)}
    if chosen.note:
        headers["X-Benchmax-Note"] = _header(chosen.note)
    try:
        if body.get("stream"):
            pieces = _streamed(services, chosen, body, gone)
            first = await anext(pieces, b"")  # until then a failure is still an ordinary answer
            return event_response(_guarded(first, pieces), headers)
        whole = await _whole(services, chosen, body, gone)
        return JSONResponse(whole | ({"note": chosen.note} if chosen.note else {}), headers=headers)
    except Exception as error:
        status, problem = _problem(error)
        if status == 500:
            raise
        return JSONResponse(problem, status, headers)


def _header(text: str) -> str:
    """A text as a header can hold it."""
    return " ".join(text.encode("ascii", "replace").decode().split())


async def _whole(services: Services, chosen: ChosenModel, body: Mapping[str, Any], gone: Gone) -> dict[str, Any]:
    if not chosen.base_url:
        async with aclosing(_local(services, chosen, body)) as events:
            async for event in events:
                if event is not None:
                    return dict(event["reply"])
                if await gone():
                    break
        raise ModelUnavailable(_BROKE_OFF)
    async with _relayed(services, chosen, body) as pieces:
        raw = b"".join([piece async for piece in pieces])
    reply = object_in(raw)
    if reply is None:
        raise ModelProtocolError("The endpoint's answer is not a JSON object. Check its address.")
    return reply


async def _streamed(
    services: Services, chosen: ChosenModel, body: Mapping[str, Any], gone: Gone
) -> AsyncGenerator[bytes, None]:
    if chosen.base_url:
        async with _relayed(services, chosen, body) as pieces:
            async for piece in pieces:
                yield piece
        return
    begun = False
    async with aclosing(_local(services, chosen, body)) as events:
        async for event in events:
            if event is not None:
                begun = True
                yield sse.event(event["chunk"])
            elif begun:
                yield sse.ALIVE
            elif await gone():
                raise ModelUnavailable(_BROKE_OFF)
    yield sse.DONE


async def _guarded(first: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """A stream that has begun reports a failure as its last event."""
    async with aclosing(pieces):
        try:
            yield first
            async for piece in pieces:
                yield piece
        except Exception as error:
            yield sse.event(_problem(error)[1])


async def _local(
    services: Services, chosen: ChosenModel, body: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any] | None, None]:
    request = {"do": "chat", "body": {**body, "model": chosen.model}}
    async with aclosing(
        services.live_sessions.ask(lambda: services.live_sessions.for_model(chosen.model), request)
    ) as events:
        async for event in events:
            if event is not None and "error" in event:
                raise Refusal(int(event["status"]), event["error"])
            yield event


@asynccontextmanager
async def _relayed(
    services: Services, chosen: ChosenModel, body: Mapping[str, Any]
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    from benchmax.models.endpoints import endpoint_model

    request = json.dumps({**body, "model": chosen.model}).encode()
    async with (
        await endpoint_model(chosen.to_dict(services.settings)) as model,
        aclosing(model.relay(request)) as pieces,
    ):
        yield pieces


def _problem(error: Exception) -> tuple[int, dict[str, Any]]:
    if isinstance(error, Refusal):
        return error.status, error.body
    if isinstance(error, SessionBroken):
        return 503, error_body(str(error), kind="server_error", code="model_unavailable")
    return error_response(error)
