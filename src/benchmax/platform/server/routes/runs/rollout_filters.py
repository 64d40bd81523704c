"""What requests about runs have in common: pages, filters on rollouts, and answers from the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from benchmax.platform.server.security.run_access import VisibleRun
from benchmax.platform.server.server_services import Services
from benchmax.platform.store.runs import evals
from benchmax.platform.store.tables import Run

Page = Annotated[int, Query(ge=1, le=100_000)]
EvalId = Annotated[str | None, Query(alias="externalEvalId", max_length=80)]
Order = Annotated[Literal["newest", "worst", "best", "longest"], Query()]
_Reward = Annotated[float | None, Query(allow_inf_nan=False)]


async def _scope(
    mode: Annotated[str, Query(max_length=40)] = "eval", external_eval_id: EvalId = None
) -> dict[str, str]:
    return {"split": evals.SPLIT, "eval_id": external_eval_id} if external_eval_id else {"split": mode}


Scope = Annotated[dict[str, str], Depends(_scope)]
"""Which rollouts of a run. Clients call a split `mode`; an external eval has its own, whatever was named with it."""


async def _wanted(
    scope: Scope,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    example: Annotated[str | None, Query(alias="promptMessageId", max_length=80)] = None,
    termination: Annotated[str | None, Query(max_length=40)] = None,
    failed: bool | None = None,
    tool: Annotated[str | None, Query(max_length=200)] = None,
    discarded: bool | None = None,
    lowest: _Reward = None,
    highest: _Reward = None,
    component: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    return {
        **scope,
        "step": step,
        "example_id": example,
        "termination": termination,
        "failed": failed,
        "tool": tool,
        "discarded": discarded,
        "lowest": lowest,
        "highest": highest,
        "component": component,
    }


Wanted = Annotated[dict[str, Any], Depends(_wanted)]
"""What `rollouts.matching` filters on."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """Answers a request about a run, from the cache while nothing new was recorded."""

    request: Request
    services: Services
    run: Run

    def __call__(self, make: Callable[[Session], bytes | BaseModel]) -> Response:
        """What `make` reads from the database: JSON, or a shape that is encoded here."""

        def encoded() -> bytes:
            made = make(db)
            return made if isinstance(made, bytes) else made.model_dump_json(by_alias=True).encode()

        with self.services.database.read() as db:
            return self.services.response_cache.answer(self.request, db, self.run, encoded)


async def _cached(request: Request, services: Services, run: VisibleRun) -> CachedAnswer:
    return CachedAnswer(request, services, run)


Cached = Annotated[CachedAnswer, Depends(_cached)]
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"model": None}}
"""The other answer of such a route, for a browser that has this version."""
