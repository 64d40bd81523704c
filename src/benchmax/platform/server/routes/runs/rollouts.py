"""Rollouts of a run: lists, heat maps, averages, one in full, and side by side with another model."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import Response
from sqlalchemy.orm import Session

from benchmax.envs.normalise_rewards import WHOLE
from benchmax.errors import UsageError
from benchmax.evaluation.compare import TOTAL, Difference, compare_scores
from benchmax.platform.server.error_responses import required
from benchmax.platform.server.routes.parameters import Id, Limit
from benchmax.platform.server.routes.runs.rollout_filters import UNCHANGED, Cached, EvalId, Order, Page, Scope, Wanted
from benchmax.platform.server.security.authentication import MaybeCaller, Principal
from benchmax.platform.server.security.run_access import NOT_FOUND, VisibleRun
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.runs.rollout_tokens import token_runs
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.runs import evals, rollout_search, rollouts, runs
from benchmax.platform.store.tables import Run
from benchmax.platform.wire import rollouts as wire
from benchmax.platform.wire.evals import ComparedComponent, ComparedGroup, Comparison, ComparisonSummary

router = Router(prefix="/v1/train/runs/{run_id}/rollouts", tags=["rollouts"])

OtherRunId = Annotated[str | None, Query(alias="otherRunId", max_length=80)]
_NO_ROLLOUT = "The run has no such rollout. Its Rollouts page, or GET …/rollouts/summary, shows those it has."


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@router.get("")
def list_rollouts(
    services: Services, run: VisibleRun, wanted: Wanted, order: Order = "newest", page: Page = 1, limit: Limit = 50
) -> wire.RolloutList:
    """Rollouts by what a list can filter on, newest step first or as `order` says."""
    with services.database.read() as db:
        found = rollouts.page(db, run.id, order=order, limit=limit, offset=(page - 1) * limit, **wanted)
    return wire.RolloutList(data=[shape(wire.RolloutItem, row) for row in found], page=page, limit=limit)


@router.get("/outline", response_model=wire.RolloutOutline, responses=UNCHANGED)
def outline(run: VisibleRun, cached: Cached, wanted: Wanted) -> Response:
    """How many rollouts fit at each step, newest first; and what could be filtered on."""

    def found(db: Session) -> wire.RolloutOutline:
        steps = [wire.StepOutline(**each) for each in rollout_search.steps(db, run.id, **wanted)]
        tools, ended = rollout_search.facets(db, run.id, wanted["split"], wanted.get("eval_id", ""))
        return wire.RolloutOutline(steps=steps, tools=tools, terminations=ended)

    return cached(found)


@router.get("/search")
def search(
    services: Services,
    run: VisibleRun,
    wanted: Wanted,
    text: Annotated[str, Query(min_length=1, max_length=300)],
    order: Order = "newest",
    limit: Limit = 200,
) -> wire.FoundRollouts:
    """Rollouts whose prompt, turns, task, errors or logs hold a text; `searched` is how many were read."""
    with services.database.read() as db:
        folder = services.data.run(run.id)
        found = rollout_search.search(db, folder, run.id, text, order=order, limit=limit, **wanted)
    rows = [wire.FoundRollout(rollout=shape(wire.RolloutItem, row), words=words) for row, words in found.rows]
    return wire.FoundRollouts(found=rows, searched=found.searched, total=found.total)


@router.get("/summary", response_model=wire.RolloutSummary, responses=UNCHANGED)
def summary(run: VisibleRun, cached: Cached, scope: Scope, page: Page = 1, limit: Limit = 50) -> Response:
    """Every example with its mean reward at each step."""

    def found(db: Session) -> bytes:
        groups = rollouts.summary(db, run.id, **scope, limit=limit, offset=(page - 1) * limit)
        total = rollouts.count_examples(db, run.id, **scope)
        return _json({"data": groups, "page": page, "limit": limit, "total": total})

    return cached(found)


@router.get("/heatmap", response_model=list[wire.HeatCell], responses=UNCHANGED)
def heatmap(
    run: VisibleRun,
    cached: Cached,
    scope: Scope,
    example: Annotated[str, Query(alias="promptMessageId", min_length=1, max_length=80)],
) -> Response:
    """Every rollout of one example."""
    return cached(lambda db: _json(rollouts.heatmap(db, run.id, example, **scope)))


@router.get("/mode-average", response_model=wire.ModeAverage, responses=UNCHANGED)
def mode_average(run: VisibleRun, cached: Cached, scope: Scope) -> Response:
    """The mean reward of a mode; unscored rollouts are left out, not counted as 0."""
    return cached(lambda db: _json(rollouts.split_average(db, run.id, **scope)))


@router.get("/component-averages")
def component_averages(services: Services, run: VisibleRun, scope: Scope) -> dict[str, float] | None:
    """The mean of each reward component at the latest step; null when there is none."""
    with services.database.read() as db:
        return rollouts.component_averages(db, run.id, **scope)


@router.get("/comparison")
def comparison(
    services: Services,
    run: VisibleRun,
    caller: MaybeCaller,
    external_eval_id: EvalId = None,
    other_run_id: OtherRunId = None,
    page: Page = 1,
    limit: Limit = 50,
) -> Comparison:
    """The run's latest eval beside another model's, or another run's, example by example."""
    with services.database.read() as db:
        other_id, theirs = _compared_with(db, run, caller, external_eval_id, other_run_id)
        examples = rollouts.examples(db, other_id, **theirs, limit=limit, offset=(page - 1) * limit)
        ours = rollouts.groups(db, run.id, examples, split="eval")
        compared = rollouts.groups(db, other_id, examples, **theirs)
        total = rollouts.count_examples(db, other_id, **theirs)
    return Comparison(
        model_groups=[ComparedGroup(**group) for group in ours],
        comp_groups=[ComparedGroup(**group) for group in compared],
        page=page,
        limit=limit,
        total=total,
    )


@router.get("/comparison/summary")
def comparison_summary(
    services: Services,
    run: VisibleRun,
    caller: MaybeCaller,
    external_eval_id: EvalId = None,
    other_run_id: OtherRunId = None,
) -> ComparisonSummary:
    """The run's latest eval against another model's, or another run's: each component, paired by example."""
    with services.database.read() as db:
        other_id, theirs = _compared_with(db, run, caller, external_eval_id, other_run_id)
        other = rollouts.scores(db, other_id, **theirs)
        found = compare_scores(base=other, other=rollouts.scores(db, run.id))
    number = found[TOTAL].delta.n if found else 0
    return ComparisonSummary(n=number, components=[_compared(name or WHOLE, each) for name, each in found.items()])


def _compared_with(
    db: Session, run: Run, caller: Principal | None, eval_id: str | None, other_run_id: str | None
) -> tuple[str, dict[str, str]]:
    """The run whose rollouts are the other side, and which of them: an evaluation of this run, or another run's own."""
    if (eval_id is None) == (other_run_id is None):
        raise UsageError("Name what to compare with: externalEvalId or otherRunId, one of them.")
    if eval_id is not None:
        required(evals.get(db, run.id, eval_id), "The run has no such eval. GET …/external-eval lists them.")
        return run.id, {"split": evals.SPLIT, "eval_id": eval_id}
    another = runs.visible(db, other_run_id or "", caller.user_id if caller else None)
    return required(another, NOT_FOUND).id, {"split": "eval"}


def _compared(name: str, each: Difference) -> ComparedComponent:
    low, high = each.delta.bounds
    return ComparedComponent.model_validate(
        {
            "name": name,
            "ours": each.other,
            "other": each.base,
            "delta": each.delta.mean,
            "ci_low": low,
            "ci_high": high,
            "n": each.delta.n,
            "label": _label(each),
        }
    )


def _label(found: Difference) -> str:
    """The verdict on the run against the other model, in the words of published clients."""
    unclear = "closing in" if found.delta.mean < 0 else found.verdict
    return {"better": "outperformed", "worse": "comparison leads"}.get(found.verdict, unclear)


@router.get("/{rollout_id}/details")
def details(services: Services, run: VisibleRun, rollout_id: Id) -> wire.RolloutDetails:
    """One rollout in full: every turn, every reward, the task."""
    with services.database.read() as db:
        row = required(rollouts.get(db, run.id, rollout_id), _NO_ROLLOUT)
    folder = services.data.run(run.id)
    record = rollouts.read_body(folder, row)
    body = record or {}
    messages = body.get("messages") or [{"role": "user", "content": row.prompt_text}]
    start = body.get("completion_start") or (len(messages) if not body else 0)
    return shape(
        wire.RolloutDetails,
        row,
        prompt_messages=messages[:start],
        messages=messages[start:],
        rewards=[wire.NamedReward(name=name, value=value) for name, value in row.components.items()],
        unscored=body.get("unscored") or {},
        task=body.get("task"),
        error=body.get("error"),
        tool_events=body.get("tool_events") or [],
        logs=body.get("logs") or [],
        seconds=body.get("seconds") or {},
        complete=record is not None,
        token_runs=token_runs(folder, body),
    )
