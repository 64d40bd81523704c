"""Evaluations of a run: of its checkpoints and of other models on its held-out rows, and its rollouts scored again."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.security.run_access import RunId, VisibleRun, own_run
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import catalogue
from benchmax.platform.server.services.live_sessions import reach_of
from benchmax.platform.server.services.models import own_endpoint
from benchmax.platform.server.services.runs import checkpoints
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals, rollouts
from benchmax.platform.store.tables import Run
from benchmax.platform.store.uploads import blobs
from benchmax.platform.wire.evals import EvalInfo, EvalList, EvalRequest
from benchmax.platform.wire.launches import RescoreRequest

router = Router(prefix="/v1/train/runs/{run_id}", tags=["evals"])


@router.get("/external-eval")
def list_evals(services: Services, run: VisibleRun) -> EvalList:
    """Evaluations of this run's models and of others on its eval rows."""
    with services.database.read() as db:
        return EvalList(evals=[shape(EvalInfo, row) for row in evals.of_run(db, run.id)])


@router.post("/external-eval", status_code=201)
def start_eval(services: Services, run_id: RunId, caller: Caller, body: EvalRequest) -> EvalInfo:
    """Queue an evaluation of the base model, a checkpoint or one of your endpoints."""
    services.limiter.hit("eval", caller.user_id)
    with own_run(services, run_id, caller) as (db, run):
        _check_plays(run)
        kind, _, name = body.model.partition(":")
        kept = [path.name for path in checkpoints.folders(services.data.run(run.id))]
        if kind == "checkpoint" and name not in ("latest", "best", *kept):
            raise UsageError(checkpoints.missing(services.data.run(run.id)))
        if kind == "endpoint":
            own_endpoint(db, caller.user_id, name)
        options = {"rows": body.rows, "samples": body.samples, "reach": reach_of(services.settings)}
        row = evals.create(db, run.id, model=body.model, name=body.name, options=options)
        # An endpoint computes elsewhere: nothing here that needs a slot.
        jobs.enqueue(db, run.id, kind="eval", eval_id=row.id, slots=int(kind != "endpoint"))
        caller.note(db, "eval.start", row.id, run=run.id, model=body.model)
        return shape(EvalInfo, row)


@router.post("/rescore", status_code=201)
def rescore(services: Services, run_id: RunId, caller: Caller, body: RescoreRequest | None = None) -> EvalInfo:
    """Score the latest evaluation's rollouts again, with the reward code of an environment; no model plays."""
    services.limiter.hit("eval", caller.user_id)
    body = body or RescoreRequest()
    with own_run(services, run_id, caller) as (db, run):
        _check_plays(run)
        step = rollouts.split_average(db, run.id, split="eval")["latestStep"]
        if step is None:
            raise UsageError("The run has no evaluation yet. Wait for its first one.")
        options: dict[str, Any] = {"step": step}
        name = body.name or f"step {step} scored again"
        if body.environment is not None:
            found = catalogue.find(db, caller.user_id, body.environment)
            paths = catalogue.bundle_paths(db, services.blobs, caller.user_id, found)
            options["environment"] = {part: _sha256(db, caller.user_id, path) for part, path in paths.items()}
        row = evals.create(db, run.id, model="rescore", name=name, options=options)
        jobs.enqueue(db, run.id, kind="rescore", eval_id=row.id, slots=0)
        caller.note(db, "eval.rescore", row.id, run=run.id, environment=body.environment or "")
        return shape(EvalInfo, row)


def _check_plays(run: Run) -> None:
    if run.kind == "sft":
        raise UsageError("A supervised run has no environment to play. Fork it onto one, then evaluate that run.")


def _sha256(db: Session, owner_id: str, path: str) -> str:
    found = blobs.find(db, owner_id, path)
    assert found is not None
    return found[1].sha256
