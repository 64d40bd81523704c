"""Runs: lists, details, events, scalars, logs, live feed; and what their owner may do to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated

from fastapi import Header, Query
from fastapi.responses import Response, StreamingResponse
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from benchmax.net import sse
from benchmax.platform.server.routes.parameters import Cursor, Limit
from benchmax.platform.server.routes.runs.rollout_filters import UNCHANGED, Cached
from benchmax.platform.server.security.authentication import Caller, MaybeCaller
from benchmax.platform.server.security.run_access import RunId, VisibleRun, own_run
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.event_response import STREAM, event_response
from benchmax.platform.server.services.runs.run_views import run_info, run_infos
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import events, metrics, rollouts, runs
from benchmax.platform.store.tables import Run
from benchmax.platform.wire import runs as wire
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.values import ENDED

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
) -> list[wire.RunInfo]:
    """Your runs, newest first."""
    with services.database.read() as db:
        found = runs.of_owner(
            db, caller.user_id, archived=archived, status=status, tag=tag, search=search, limit=limit, offset=offset
        )
        return run_infos(db, found, caller, services.data, config=include_config)


@router.get("/{run_id}")
def get_run(services: Services, run: VisibleRun, caller: MaybeCaller, include_config: _Config = False) -> wire.RunInfo:
    """One run."""
    with services.database.read() as db:
        return run_info(db, run, caller, services.data, config=include_config)


@router.get("/{run_id}/details")
def get_details(services: Services, run: VisibleRun, caller: MaybeCaller) -> wire.RunDetails:
    """One run, with its modes and the number of errors."""
    with services.database.read() as db:
        splits = sorted({*metrics.splits(db, run.id), *rollouts.splits(db, run.id)})
        info = run_info(db, run, caller, services.data, config=True)
    return wire.RunDetails(**dict(info), modes=splits, error_count=run.error_count)


@router.get("/{run_id}/events", response_model=wire.RunEvents, responses=UNCHANGED)
def get_events(run: VisibleRun, cached: Cached) -> Response:
    """What happened, oldest first."""
    return cached(lambda db: _events(db, run))


@router.get("/{run_id}/alerts")
def get_alerts(services: Services, run: VisibleRun) -> wire.RunEvents:
    """Only what needs a look."""
    with services.database.read() as db:
        return _events(db, run, ["alert"])


def _events(db: Session, run: Run, categories: Sequence[str] = events.SHOWN) -> wire.RunEvents:
    return wire.RunEvents(events=[shape(wire.RunEvent, event) for event in events.of_run(db, run.id, categories)])


@router.get("/{run_id}/scalars", response_model=dict[str, list[wire.ScalarPoint]], responses=UNCHANGED)
def get_scalars(
    run: VisibleRun,
    cached: Cached,
    mode: Annotated[str, Query(min_length=1, max_length=40)],
    buckets: Annotated[int | None, Query(ge=1, le=10_000)] = None,
) -> Response:
    """Every series of a mode: `{name: [{step, value}]}`; `{}` for a mode there is not.

    With `buckets`, at most so many points a series, for a chart: each with the mean of its steps, and `min` and `max`.
    """
    return cached(lambda db: metrics.encoded(db, run.id, mode, buckets))


@router.get("/{run_id}/environment-logs", response_model=wire.EnvLogs, responses=UNCHANGED)
def get_logs(
    run: VisibleRun,
    cached: Cached,
    rollout_id: Annotated[str | None, Query(alias="rolloutId", max_length=80)] = None,
    limit: Annotated[int, Query(ge=1, le=LOG_LINES)] = LOG_LINES,
    cursor: Cursor = 0,
) -> Response:
    """What the environment logged, oldest first; of one rollout, or of all."""

    def page(db: Session) -> wire.EnvLogs:
        found = rollouts.logs(db, run.id, rollout_id=rollout_id, limit=limit, after=cursor)
        last = str(found[-1].id if found else cursor)
        logs = [shape(wire.EnvLogLine, line, content=line.message) for line in found]
        return wire.EnvLogs(logs=logs, next_cursor=last if len(found) == limit else None, cursor=last)

    return cached(page)


@router.get("/{run_id}/stream", response_class=StreamingResponse, responses=STREAM)
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
        yield sse.ALIVE  # proxies hold an answer back until it has a body, and a reader asks again once it is open
        async with aclosing(services.feeds.follow(run.id, last)) as news:
            async for piece in news:
                yield piece
        yield sse.event({"type": "end"})

    return event_response(encoded(), {"Cache-Control": "no-cache"})


# What an owner may do


@router.patch("/{run_id}")
def change_run(services: Services, run_id: RunId, caller: Caller, body: wire.RunChange) -> wire.RunInfo:
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
        if run.status in ENDED:
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
            way_on = f" To train it further, fork it: benchmax runs fork {run.id}" if run.status == "complete" else ""
            words = f"The run is {run.status}; only an interrupted run can be resumed.{way_on}"
            return Success(success=False, message=words)
        jobs.enqueue(db, run.id)
        caller.note(db, "run.resume", run.id)
    return Success(success=True, message="The run waits for a free slot.")
