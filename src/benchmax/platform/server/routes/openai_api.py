"""The OpenAI API over the platform's models: those of this machine, and the caller's endpoints."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from benchmax.errors import NotFoundError, UsageError
from benchmax.models.openai_error_bodies import error_response
from benchmax.net.sse import MEDIA_TYPE
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import models
from benchmax.platform.server.services.completions import answer
from benchmax.platform.server.threads import Router
from benchmax.platform.wire.models import ChatBody, ModelCard, ModelCards

router = Router(prefix="/v1", tags=["models"])

ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "application/json": {"schema": {"type": "object"}},
            MEDIA_TYPE: {"schema": {"type": "string"}},
        },
        "description": "A chat completion, or with `stream` its chunks; `model` says who answered",
    }
}


@router.get("/models")
def list_models(services: Services, caller: Caller) -> ModelCards:
    """The models you can ask. Any other name is answered by the default one, the first of them."""
    return ModelCards(data=_cards(services, caller.user_id))


@router.get("/models/{name:path}")
def get_model(services: Services, caller: Caller, name: Annotated[str, Path(max_length=200)]) -> ModelCard:
    """One of these models."""
    for card in _cards(services, caller.user_id):
        if card.id == name:
            return card
    raise NotFoundError(f"There is no model {name!r} here. GET /v1/models lists them.")


@router.post("/chat/completions", response_class=Response, responses=ANSWER)
async def complete_chat(request: Request, services: Services, caller: Caller, body: ChatBody) -> Response:
    """Answer a chat, by the model that is named or by the platform's default one."""
    services.limiter.hit("completion", caller.user_id)
    try:
        chosen = await run_in_threadpool(models.choose_own, services, caller.user_id, body.model)
    except UsageError as error:
        status, problem = error_response(error)
        return JSONResponse(problem, status)
    asked = body.model_dump(mode="json", exclude_unset=True)
    return await answer(services, chosen, asked, request.is_disconnected)


def _cards(services: Services, user_id: str) -> list[ModelCard]:
    default = models.choose_own(services, user_id, "")
    stored, known = models.local_names()
    with services.database.read() as db:
        endpoints = [(each.name, each.model) for each in models.endpoints_of(db, user_id)]
    cards = [ModelCard(id=name, owned_by="this machine") for name in (*stored, *known)]
    cards += [ModelCard(id=name, owned_by=f"endpoint {model}") for name, model in endpoints]
    first = next((name for name, model in endpoints if default.base_url and model == default.model), default.model)
    return sorted(cards, key=lambda card: card.id != first)
