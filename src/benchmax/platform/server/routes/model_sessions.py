"""Model sessions, as published clients open them to see what a trainer would see: ask a model, collect the calls."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response

from benchmax import limits
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes.openai_api import ANSWER
from benchmax.platform.server.routes.parameters import any_body
from benchmax.platform.server.security.authentication import Caller, Principal, shown_key
from benchmax.platform.server.server_services import Address, Services
from benchmax.platform.server.services import models
from benchmax.platform.server.services.model_sessions import ModelSession
from benchmax.platform.server.services.recorded_calls import recorded_answer
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router, in_threads
from benchmax.platform.store.tables import ApiKey
from benchmax.platform.wire import models as wire
from benchmax.platform.wire.base import Success

router = Router(prefix="/v1/sessions", tags=["models"])

SessionId = Annotated[str, Path(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
_RECORD: dict[int | str, dict[str, Any]] = {200: {"model": wire.ModelSessionRecord}}


@router.put("/{session_id}")
def open_session(
    services: Services, caller: Caller, address: Address, session_id: SessionId, body: wire.ModelSessionRequest
) -> wire.ModelSessionOpened:
    """A model at an address and with a key of its own. Your last session of this name ends, its calls are forgotten."""
    services.limiter.hit("model_session", caller.user_id)
    with services.database.read() as db:
        key = shown_key(db, caller)
    if key is None:
        raise Refused(403, "A session is opened with an API key, and ends with it. Send `Authorization: Bearer sk_…`.")
    chosen = models.choose_own(services, caller.user_id, body.model)
    session = ModelSession(
        id=session_id,
        owner_id=caller.user_id,
        key_id=key.id,
        asked_model=body.model,
        model=chosen.model,
        note=chosen.note,
        max_context_tokens=body.max_context_tokens,
        expires=_end(body, key),
    )
    text = services.model_sessions.open(session)
    return shape(wire.ModelSessionOpened, session, session_key=text, base_url=f"{address}/v1/sessions/{session_id}")


@router.get("/{session_id}/models")
def list_session_models(services: Services, caller: Caller, session_id: SessionId) -> wire.ModelCards:
    """The model of the session: it answers whichever is named."""
    session = _own(services, caller, session_id)
    return wire.ModelCards(data=[wire.ModelCard(id=session.model, owned_by=f"session {session.id}")])


@router.post("/{session_id}/chat/completions", response_class=Response, responses=ANSWER)
async def complete_session_chat(
    request: Request, services: Services, caller: Caller, session_id: SessionId, body: wire.ChatBody
) -> Response:
    """Answer a chat by the session's model, and record it."""
    services.limiter.hit("completion", caller.user_id)
    session = _own(services, caller, session_id)
    asked = body.model_dump(mode="json", exclude_unset=True)
    return await recorded_answer(services, session, asked, request.is_disconnected)


@router.post(
    "/{session_id}/collect", response_class=Response, responses=_RECORD, openapi_extra=any_body("application/json")
)
@in_threads("reads")
def collect_session(services: Services, caller: Caller, session_id: SessionId) -> Response:
    """The session's calls in the order in which they began; one that is under way comes when it is over."""
    session = _own(services, caller, session_id)
    kept = b",".join(services.model_sessions.calls_of(session))  # JSON already
    record = shape(wire.ModelSessionRecord, session, call_count=session.begun, calls=[])
    head = record.model_dump_json().encode().removesuffix(b"[]}")
    return Response(head + b"[" + kept + b"]}", media_type="application/json")


@router.delete("/{session_id}")
def end_model_session(services: Services, caller: Caller, session_id: SessionId) -> Success:
    """End a session, and forget its calls."""
    _own(services, caller, session_id)
    services.model_sessions.end(caller.user_id, session_id)
    return Success(success=True, message="The session is ended.")


def _own(services: Services, caller: Principal, session_id: str) -> ModelSession:
    found = services.model_sessions.find(caller.user_id, session_id)
    return required(found, "You have no such session, or it has ended. Open it with PUT /v1/sessions/ID.")


def _end(body: wire.ModelSessionRequest, key: ApiKey) -> float:
    """When a session ends: no later than the key that opens it."""
    seconds = limits.MODEL_SESSION_SECONDS if body.ttl_seconds is None else body.ttl_seconds
    return min(time.time() + min(seconds, limits.MODEL_SESSION_MOST_SECONDS), key.expires or float("inf"))
