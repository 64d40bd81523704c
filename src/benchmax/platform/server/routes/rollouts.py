"""Rollouts of a run: lists, heat maps, averages, one in full, and side by side with another model."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse

from benchmax.platform.schemas import (
    ComparedGroup,
    Comparison,
    HeatCell,
    ModeAverage,
    NamedReward,
    RolloutDetails,
    RolloutItem,
    RolloutList,
    RolloutSummary,
)
from benchmax.platform.server.platform import Here
from benchmax.platform.server.problems import Refused
from benchmax.platform.server.routes.views import EvalId, Limit, Mode, Page, VisibleRun
from benchmax.platform.store import evals, rollouts
from benchmax.platform.store.tables import RolloutRow

router = APIRouter(prefix="/v1/train/runs/{run_id}/rollouts", tags=["rollouts"])

_NO_ROLLOUT = "The run has no such rollout. GET …/rollouts/summary lists its examples."


def _scope(mode: str, external_eval_id: str | None) -> dict[str, str]:
    """An external eval has its own mode, whatever mode was named with it."""
    return {"mode": evals.MODE, "eval_id": external_eval_id} if external_eval_id else {"mode": mode}


@router.get("")
def list_rollouts(
    here: Here,
    run: VisibleRun,
    mode: Mode = "eval",
    external_eval_id: EvalId = None,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    example: Annotated[str | None, Query(alias="promptMessageId", max_length=80)] = None,
    termination: Annotated[str | None, Query(max_length=40)] = None,
    failed: bool | None = None,
    tool: Annotated[str | None, Query(max_length=200)] = None,
    page: Page = 1,
    limit: Limit = 50,
) -> RolloutList:
    """Rollouts by what a list can filter on, newest step first."""
    with here.database.read() as session:
        found = rollouts.page(
            session,
            run.id,
            **_scope(mode, external_eval_id),
            step=step,
            example_id=example,
            termination=termination,
            failed=failed,
            tool=tool,
            limit=limit,
            offset=(page - 1) * limit,
        )
    return RolloutList(data=[_item(row) for row in found], page=page, limit=limit)


@router.get("/summary", response_model=RolloutSummary)
def summary(
    here: Here, run: VisibleRun, mode: Mode = "eval", external_eval_id: EvalId = None, page: Page = 1, limit: Limit = 50
) -> JSONResponse:
    """Every example with its mean reward at each step."""
    scope = _scope(mode, external_eval_id)
    with here.database.read() as session:
        groups = rollouts.summary(session, run.id, **scope, limit=limit, offset=(page - 1) * limit)
        total = rollouts.count_examples(session, run.id, **scope)
    return JSONResponse({"data": groups, "page": page, "limit": limit, "total": total})


@router.get("/heatmap")
def heatmap(
    here: Here,
    run: VisibleRun,
    example: Annotated[str, Query(alias="promptMessageId", min_length=1, max_length=80)],
    mode: Mode = "eval",
    external_eval_id: EvalId = None,
) -> list[HeatCell]:
    """Every rollout of one example."""
    with here.database.read() as session:
        cells = rollouts.heatmap(session, run.id, example, **_scope(mode, external_eval_id))
    return [HeatCell(**cell) for cell in cells]


@router.get("/mode-average")
def mode_average(here: Here, run: VisibleRun, mode: Mode = "eval", external_eval_id: EvalId = None) -> ModeAverage:
    """The mean reward of a mode; unscored rollouts are left out, not counted as 0."""
    with here.database.read() as session:
        return ModeAverage(**rollouts.mode_average(session, run.id, **_scope(mode, external_eval_id)))


@router.get("/component-averages")
def component_averages(
    here: Here, run: VisibleRun, mode: Mode = "eval", external_eval_id: EvalId = None
) -> dict[str, float] | None:
    """The mean of each reward component at the latest step; null when there is none."""
    with here.database.read() as session:
        return rollouts.component_averages(session, run.id, **_scope(mode, external_eval_id))


@router.get("/comparison")
def comparison(
    here: Here,
    run: VisibleRun,
    external_eval_id: Annotated[str, Query(alias="externalEvalId", min_length=1, max_length=80)],
    page: Page = 1,
    limit: Limit = 50,
) -> Comparison:
    """The run's latest eval beside another model's, example by example."""
    with here.database.read() as session:
        if evals.get(session, run.id, external_eval_id) is None:
            raise Refused(404, "The run has no such eval. GET …/external-eval lists them.")
        theirs = {"mode": evals.MODE, "eval_id": external_eval_id}
        examples = rollouts.examples(session, run.id, **theirs, limit=limit, offset=(page - 1) * limit)
        ours = rollouts.groups(session, run.id, examples, mode="eval")
        compared = rollouts.groups(session, run.id, examples, **theirs)
        total = rollouts.count_examples(session, run.id, **theirs)
    return Comparison(
        model_groups=[ComparedGroup(**group) for group in ours],
        comp_groups=[ComparedGroup(**group) for group in compared],
        page=page,
        limit=limit,
        total=total,
    )


@router.get("/{rollout_id}/details")
def details(here: Here, run: VisibleRun, rollout_id: Annotated[str, Path(max_length=80)]) -> RolloutDetails:
    """One rollout in full: every turn, every reward, the task."""
    with here.database.read() as session:
        row = rollouts.get(session, run.id, rollout_id)
    if row is None:
        raise Refused(404, _NO_ROLLOUT)
    body = rollouts.read_body(here.data.run(run.id), row)
    return RolloutDetails(complete=body is not None, **_details(row, body or {}))


def _details(row: RolloutRow, body: dict[str, Any]) -> dict[str, Any]:
    messages = body.get("messages") or [{"role": "user", "content": row.prompt_text}]
    start = body.get("completion_start") or (len(messages) if not body else 0)
    return {
        "id": row.id,
        "step": row.step,
        "mode": row.mode,
        "prompt_message_id": row.example_id,
        "sample": row.sample,
        "prompt_messages": messages[:start],
        "messages": messages[start:],
        "rewards": [NamedReward(name=name, value=value) for name, value in row.components.items()],
        "unscored": body.get("unscored") or {},
        "total_reward": row.reward,
        "task": body.get("task"),
        "termination": row.termination,
        "error": body.get("error"),
        "advantage": row.advantage,
        "discarded": row.discarded,
        "turns": row.turns,
        "tokens": row.tokens,
        "tool_events": body.get("tool_events") or [],
        "logs": body.get("logs") or [],
        "seconds": body.get("seconds") or {},
    }


def _item(row: RolloutRow) -> RolloutItem:
    return RolloutItem(
        id=row.id,
        step=row.step,
        mode=row.mode,
        prompt_message_id=row.example_id,
        prompt_text=row.prompt_text,
        sample=row.sample,
        total_reward=row.reward,
        rewards=row.components,
        termination=row.termination,
        error_type=row.error_type,
        ok=row.ok,
        discarded=row.discarded,
        advantage=row.advantage,
        tokens=row.tokens,
        turns=row.turns,
        tools=row.tools,
    )
