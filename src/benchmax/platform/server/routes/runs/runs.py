"""Runs: lists, details, events, scalars, logs, live feed; and what their owner may do to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from benchmax.errors import UsageError
from benchmax.files.links import read_plain
from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.authentication import Caller, MaybeCaller
from benchmax.platform.server.security.run_access import RunId, VisibleRun, own_run
from benchmax.platform.server.services import catalogue
from benchmax.platform.server.services.live_sessions import reach_of
from benchmax.platform.server.services.runs.run_views import Limit, eval_info, log_line, run_info, run_infos
from benchmax.platform.server.services.sse import ALIVE, event_info
from benchmax.platform.server.state import Services
from benchmax.platform.server.threads import Router
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals, events, metrics, rollouts, runs
from benchmax.platform.store.tables import TERMINAL, Endpoint, Run
from benchmax.platform.store.uploads import blobs
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.evals import EvalInfo, EvalList, EvalRequest
from benchmax.platform.wire.launches import RescoreRequest
from benchmax.platform.wire.runs import (
    Checkpoint,
    Checkpoints,
    EnvLogs,
    RunChange,
    RunDetails,
    RunEvents,
    RunInfo,
    ScalarPoint,
)

router = Router(prefix="/v1/train/runs", tags=["runs"])

_Config = Annotated[bool, Query(alias="includeConfig")]
LOG_LINES = 10_000
"""In one answer: clients of the published API know no second page."""


@router.get("")
def list_runs(
    services: Services,
    caller: Caller,
    include_config: _Config = False,
    archived: bool = False,
    status: Annotated[str | None, Query(max_length=20)] = None,
    tag: Annotated[str | None, Query(max_length=60)] = None,
    search: Annotated[str, Query(max_length=200)] = "",
    limit: Limit = 1000,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> list[RunInfo]:
    """Your runs, newest first."""
    with services.database.read() as db:
        found = runs.of_owner(
            db,
            caller.user_id,
            archived=archived,
            status=status,
            tag=tag,
            search=search,
            limit=limit,
            offset=offset,
        )
        return run_infos(db, found, caller, services.data, config=include_config)


@router.get("/{run_id}")
def get_run(services: Services, run: VisibleRun, caller: MaybeCaller, include_config: _Config = False) -> RunInfo:
    """One run."""
    with services.database.read() as db:
        return run_info(db, run, caller, services.data, config=include_config)


@router.get("/{run_id}/details")
def get_details(services: Services, run: VisibleRun, caller: MaybeCaller) -> RunDetails:
    """One run, with its modes and the number of errors."""
    with services.database.read() as db:
        modes = sorted({*metrics.modes(db, run.id), *rollouts.modes(db, run.id)})
        info = run_info(db, run, caller, services.data, config=True)
    return RunDetails(**dict(info), modes=modes, error_count=run.error_count)


@router.get("/{run_id}/events", response_model=RunEvents, responses={304: {"model": None}})
def get_events(request: Request, services: Services, run: VisibleRun) -> Response:
    """What happened, oldest first."""

    def make() -> bytes:
        found = RunEvents(events=[event_info(event) for event in events.of_run(db, run.id)])
        return found.model_dump_json(by_alias=True).encode()

    with services.database.read() as db:
        return services.response_cache.answer(request, db, run, make)


@router.get("/{run_id}/alerts")
def get_alerts(services: Services, run: VisibleRun) -> RunEvents:
    """Only what needs a look."""
    with services.database.read() as db:
        return RunEvents(events=[event_info(event) for event in events.of_run(db, run.id, ["alert"])])


@router.get("/{run_id}/scalars", response_model=dict[str, list[ScalarPoint]], responses={304: {"model": None}})
def get_scalars(
    request: Request,
    services: Services,
    run: VisibleRun,
    mode: Annotated[str, Query(min_length=1, max_length=40)],
    buckets: Annotated[int | None, Query(ge=1, le=10_000)] = None,
) -> Response:
    """Every series of a mode: `{name: [{step, value}]}`; `{}` for a mode there is not.

    With `buckets`, at most so many points a series, for a chart: each with the mean of its steps, and `min` and `max`.
    """
    with services.database.read() as db:
        return services.response_cache.answer(request, db, run, lambda: metrics.encoded(db, run.id, mode, buckets))


@router.get("/{run_id}/environment-logs", response_model=EnvLogs, responses={304: {"model": None}})
def get_logs(
    request: Request,
    services: Services,
    run: VisibleRun,
    rollout_id: Annotated[str | None, Query(alias="rolloutId", max_length=80)] = None,
    limit: Annotated[int, Query(ge=1, le=LOG_LINES)] = LOG_LINES,
    cursor: Annotated[int, Query(ge=0, le=2**62)] = 0,
) -> Response:
    """What the environment logged, oldest first; of one rollout, or of all."""

    def make() -> bytes:
        found = rollouts.logs(db, run.id, rollout_id=rollout_id, limit=limit, after=cursor)
        last = str(found[-1].id if found else cursor)
        logs = [log_line(line) for line in found]
        page = EnvLogs(logs=logs, next_cursor=last if len(found) == limit else None, cursor=last)
        return page.model_dump_json(by_alias=True).encode()

    with services.database.read() as db:
        return services.response_cache.answer(request, db, run, make)


_FEED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Server-sent events"}
}


@router.get("/{run_id}/stream", response_class=StreamingResponse, responses=_FEED)
async def stream(
    services: Services,
    run: VisibleRun,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    latest: bool = False,
) -> StreamingResponse:
    """Events, points and rollouts as they come, each with an id; send `Last-Event-ID` to go on where you were.

    `latest` leaves out what there was before, for a reader that has just read it elsewhere.
    """
    last = int(last_event_id) if last_event_id and last_event_id.isdecimal() and len(last_event_id) < 19 else 0
    if latest and not last:
        last = await run_in_threadpool(services.feeds.newest, run.id)

    async def encoded() -> AsyncIterator[bytes]:
        yield ALIVE  # proxies hold an answer back until it has a body, and a reader asks again once it is open
        async with aclosing(services.feeds.follow(run.id, last)) as news:
            async for piece in news:
                yield piece
        yield b'data: {"type": "end"}\n\n'

    unbuffered = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(encoded(), media_type="text/event-stream", headers=unbuffered)


@router.get("/{run_id}/checkpoints")
def get_checkpoints(services: Services, run: VisibleRun) -> Checkpoints:
    """The weights that were saved, oldest first."""
    return Checkpoints(checkpoints=_checkpoints(services, run))


_MARK_BYTES = 1024


def _checkpoints(services: Services, run: Run) -> list[Checkpoint]:
    folder = services.data.run(run.id) / "checkpoints"
    marks = {}
    for mark in ("latest", "best"):
        try:
            marks[mark] = read_plain(folder, mark, _MARK_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            marks[mark] = ""
    found = []
    for path in sorted(folder.glob("step-*"), key=lambda path: (len(path.name), path.name)):
        number = path.name.removeprefix("step-")
        # Training removes old checkpoints at any moment: one that goes while it is read is not listed.
        with suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                found.append(
                    Checkpoint(
                        name=path.name,
                        step=int(number) if number.isdecimal() else None,
                        created_at=path.stat().st_mtime,
                        bytes=sum(file.lstat().st_size for file in path.rglob("*")),
                        latest=marks["latest"] == path.name,
                        best=marks["best"] == path.name,
                    )
                )
    return found


# What an owner may do


@router.patch("/{run_id}")
def change_run(services: Services, run_id: RunId, caller: Caller, body: RunChange) -> RunInfo:
    """Rename, tag, pin, annotate, archive, publish."""
    with own_run(services, run_id, caller) as (db, run):
        changes = body.model_dump(exclude_none=True)
        for name, value in changes.items():
            setattr(run, name, value)
        if "is_public" in changes:
            caller.note(db, "run.publish" if run.is_public else "run.unpublish", run.id)
        db.flush()
        return run_info(db, run, caller, services.data)


@router.delete("/{run_id}")
def delete_run(services: Services, run_id: RunId, caller: Caller) -> Success:
    """Hide the run at once; the runner stops it and removes its files."""
    with own_run(services, run_id, caller) as (db, run):
        jobs.drop_queued(db, run.id)
        runs.mark_deleted(db, run.id)
        caller.note(db, "run.delete", run.id, name=run.name)
    return Success(success=True, message="The run is deleted.")


@router.post("/{run_id}/cancel")
def cancel_run(services: Services, run_id: RunId, caller: Caller) -> Success:
    """Ask a run to stop. One that waits ends at once; one that trains saves what it has first."""
    with own_run(services, run_id, caller) as (db, run):
        if run.status in TERMINAL:
            return Success(success=False, message=f"The run has already ended: {run.status}.")
        caller.note(db, "run.cancel", run.id)
        known = [job for job in jobs.of_run(db, run.id) if job.kind == "train"]
        if not known:
            runs.set_status(db, run.id, "complete", "It had no job; there was nothing to stop.")
            return Success(success=True, message="The run had no job and is marked complete.")
        runs.request_cancel(db, run.id)
        jobs.drop_queued(db, run.id, "train")
        if all(job.state != "leased" for job in known):
            runs.set_status(db, run.id, "cancelled", "Stopped before it began.")
            return Success(success=True, message="The run is stopped.")
    return Success(success=True, message="The run is being stopped.")


@router.post("/{run_id}/resume")
def resume_run(services: Services, run_id: RunId, caller: Caller) -> Success:
    """Queue an ended run again; it goes on from its last checkpoint."""
    with own_run(services, run_id, caller) as (db, run):
        if run.status == "complete" or not runs.reopen(db, run.id):
            return Success(success=False, message=_no_resume(run))
        jobs.enqueue(db, run.id)
        caller.note(db, "run.resume", run.id)
    return Success(success=True, message="The run waits for a free slot.")


def _no_resume(run: Run) -> str:
    way_on = f" To train it further, fork it: benchmax runs fork {run.id}" if run.status == "complete" else ""
    return f"The run is {run.status}; only one that was cut off can go on.{way_on}"


@router.get("/{run_id}/external-eval")
def list_evals(services: Services, run: VisibleRun) -> EvalList:
    """Evaluations of this run's models and of others on its eval rows."""
    with services.database.read() as db:
        return EvalList(evals=[eval_info(row) for row in evals.of_run(db, run.id)])


@router.post("/{run_id}/external-eval", status_code=201)
def start_eval(services: Services, run_id: RunId, caller: Caller, body: EvalRequest) -> EvalInfo:
    """Queue an evaluation of the base model, a checkpoint or one of your endpoints."""
    services.limiter.hit("eval", caller.user_id)
    with own_run(services, run_id, caller) as (db, run):
        _check_plays(run)
        kind, _, name = body.model.partition(":")
        if kind == "checkpoint" and name not in {
            *("latest", "best"),
            *(each.name for each in _checkpoints(services, run)),
        }:
            raise UsageError("The run has no such checkpoint. Use best, latest or step-N of one that is kept.")
        endpoint = db.get(Endpoint, name) if kind == "endpoint" else None
        if kind == "endpoint" and (endpoint is None or endpoint.owner_id != caller.user_id):
            raise Refused(404, "You have no such endpoint. `benchmax endpoints list` shows yours.")
        options = {"rows": body.rows, "samples": body.samples, "reach": reach_of(services.settings)}
        row = evals.create(db, run.id, model=body.model, name=body.name, options=options)
        # An endpoint computes elsewhere: nothing here that needs a slot.
        jobs.enqueue(db, run.id, kind="eval", eval_id=row.id, slots=int(kind != "endpoint"))
        caller.note(db, "eval.start", row.id, run=run.id, model=body.model)
        return eval_info(row)


@router.post("/{run_id}/rescore", status_code=201)
def rescore(services: Services, run_id: RunId, caller: Caller, body: RescoreRequest | None = None) -> EvalInfo:
    """Score the latest evaluation's rollouts again, with the reward code of an environment; no model plays."""
    services.limiter.hit("eval", caller.user_id)
    body = body or RescoreRequest()
    with own_run(services, run_id, caller) as (db, run):
        _check_plays(run)
        step = rollouts.mode_average(db, run.id, mode="eval")["latestStep"]
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
        return eval_info(row)


def _check_plays(run: Run) -> None:
    if run.kind == "sft":
        raise UsageError("A supervised run has no environment to play. Fork it onto one, then evaluate that run.")


def _sha256(db: Session, owner_id: str, path: str) -> str:
    found = blobs.find(db, owner_id, path)
    assert found is not None
    return found[1].sha256
