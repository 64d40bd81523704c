"""What requests about runs have in common: pages, filters on rollouts, and answers from the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from benchmax.platform.server.security.run_access import VisibleRun
from benchmax.platform.server.server_services import Services
from benchmax.platform.store.runs import evals

Page = Annotated[int, Query(ge=1, le=100_000)]
EvalId = Annotated[str | None, Query(alias="externalEvalId", max_length=80)]
Order = Annotated[Literal["newest", "worst", "best", "longest"], Query()]


async def _scope(
    mode: Annotated[str, Query(max_length=40)] = "eval", external_eval_id: EvalId = None
) -> dict[str, str]:
    return {"split": evals.SPLIT, "eval_id": external_eval_id} if external_eval_id else {"split": mode}


Scope = Annotated[dict[str, str], Depends(_scope)]
"""Which rollouts of a run. Clients call a split `mode`; an external eval has its own, whatever was named with it."""


class Filters(BaseModel):
    """What a list can filter on, by the names clients use."""

    step: int | None = Field(None, ge=0, le=2**31 - 1)
    example_id: str | None = Field(None, alias="promptMessageId", max_length=80)
    termination: str | None = Field(None, max_length=40)
    failed: bool | None = None
    tool: str | None = Field(None, max_length=200)
    discarded: bool | None = None
    lowest: float | None = Field(None, allow_inf_nan=False)
    highest: float | None = Field(None, allow_inf_nan=False)
    component: str | None = Field(None, max_length=200)


async def _wanted(scope: Scope, filters: Annotated[Filters, Query()]) -> dict[str, Any]:
    return {**scope, **filters.model_dump()}


Wanted = Annotated[dict[str, Any], Depends(_wanted)]
"""What `rollouts.matching` filters on."""

Answering: TypeAlias = Callable[[Callable[[Session], bytes | BaseModel]], Response]


async def _cached(request: Request, services: Services, run: VisibleRun) -> Answering:
    def answer(make: Callable[[Session], bytes | BaseModel]) -> Response:
        def encoded() -> bytes:
            made = make(db)
            return made if isinstance(made, bytes) else made.model_dump_json(by_alias=True).encode()

        with services.database.read() as db:
            return services.response_cache.answer(request, db, run, encoded)

    return answer


Cached = Annotated[Answering, Depends(_cached)]
"""Answers a request about a run, from the cache while nothing new was recorded, with what a function reads from the
database: JSON, or a shape that is encoded here."""
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"model": None}}
"""The other answer of such a route, for a browser that has this version."""
