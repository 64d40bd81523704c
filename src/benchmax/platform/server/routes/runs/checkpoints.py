"""A run's checkpoints, and what can be made of them: a file to download, another run that goes on from one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from sqlalchemy.orm import Session
from starlette.background import BackgroundTask

from benchmax.errors import UsageError
from benchmax.files.links import open_plain
from benchmax.platform.server.downloads import attachment
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.security.authentication import Caller, Principal
from benchmax.platform.server.security.run_access import OwnedRun, VisibleRun
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.datasets.stored_rows import StoredRows
from benchmax.platform.server.services.runs import checkpoints, forks
from benchmax.platform.server.services.runs.launch_checks import specs
from benchmax.platform.server.services.runs.launch_sources import SOURCES, Sources, checked_sources
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router, in_threads, run_write
from benchmax.platform.store.queue import jobs, one_off_jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import OneOffJob, Run
from benchmax.platform.wire.launch_args import total_steps
from benchmax.platform.wire.launches import RUN_PATHS, ForkRequest, Launched, check_launch_args
from benchmax.platform.wire.runs import Checkpoints, DownloadPending

router = Router(prefix="/v1/train/runs/{run_id}", tags=["checkpoints"])

CheckpointName = Annotated[str, Path(max_length=40, pattern=r"^(best|latest|step-\d{1,9})$")]
Format = Literal["adapter", "merged"]
_LOOK_SECONDS = 0.25
_FAILED_SECONDS = 5.0
"""How long a failure is reported before another attempt is made."""


@router.get("/checkpoints")
def get_checkpoints(services: Services, run: VisibleRun) -> Checkpoints:
    """The weights that were saved, oldest first."""
    return Checkpoints(checkpoints=checkpoints.listed(services.data.run(run.id)))


@router.get(
    "/checkpoints/{name}/download",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, 202: {"model": DownloadPending}},
)
async def download(
    request: Request,
    services: Services,
    run: OwnedRun,
    caller: Caller,
    name: CheckpointName,
    format: Format = "merged",
    wait: Annotated[float, Query(ge=0, le=600)] = 300.0,
) -> Response:
    """A checkpoint as one tar: the LoRA adapter, or the whole model, with its model card.

    It is made by a process of the runner when it is asked for first, and kept. After `wait` seconds without it the
    answer is 202; ask again.
    """
    until = time.monotonic() + wait
    while True:
        path, pending = await run_write(_look, services, run, caller, name, format)
        if path is not None:
            return _file(services, run, path)
        if time.monotonic() >= until or await request.is_disconnected():
            assert pending is not None
            waiting = shape(DownloadPending, pending)
            return JSONResponse(waiting.model_dump(by_alias=True), 202, {"Retry-After": "5"})
        await asyncio.sleep(_LOOK_SECONDS)


def _find(services: Services, run: Run, name: str) -> FilePath:
    found = checkpoints.find(services.data.run(run.id), name)
    return required(found, checkpoints.missing(services.data.run(run.id)))


def _file(services: Services, run: Run, path: FilePath) -> FileResponse:
    """The file itself, not what a link of its name leads to."""
    try:
        file = open_plain(services.data.run(run.id), path.relative_to(services.data.run(run.id)))
    except OSError:
        raise Refused(404, "The file is gone. Ask for it again.") from None
    answer = FileResponse(
        f"/dev/fd/{file.fileno()}",
        headers=attachment(f"{run.name}-{path.name}"),
        stat_result=os.fstat(file.fileno()),
        background=BackgroundTask(file.close),
    )
    answer.file = file  # type: ignore[attr-defined]  # open for as long as the answer is sent
    return answer


def _look(
    services: Services, run: Run, caller: Principal, name: str, format: Format
) -> tuple[FilePath | None, OneOffJob | None]:
    """The file, when it is there and not older than its checkpoint; else the one-off job that makes it."""
    checkpoint = _find(services, run, name)
    path = services.data.run(run.id) / "exports" / f"{checkpoint.name}-{format}.tar"
    if _is_fresh(path, checkpoint):
        return path, None
    with services.database.read() as db:
        going = _going(db, run, caller, path.name)
    if going is not None:
        return None, going
    services.limiter.hit("export", caller.user_id)
    with services.database.write() as db:
        row = _going(db, run, caller, path.name)
        if row is None:
            options = {"checkpoint": checkpoint.name, "format": format, "file": path.name}
            subject = f"{run.id}/{path.name}"
            row = one_off_jobs.start(db, caller.user_id, "export", subject, run_id=run.id, options=options)
            caller.note(db, "checkpoint.export", run.id, file=path.name)
    return None, row


def _going(db: Session, run: Run, caller: Principal, file: str) -> OneOffJob | None:
    """The one-off job that makes the file now; UsageError with the reason when it just failed."""
    found = one_off_jobs.of_subject(db, caller.user_id, "export", f"{run.id}/{file}")
    latest = found[0] if found else None
    if latest is None or latest.status == "complete":
        return None
    if latest.status == "failed":
        if (latest.ended or 0.0) > time.time() - _FAILED_SECONDS:
            raise UsageError(f"The file could not be made: {latest.reason}")
        return None
    return latest if one_off_jobs.has_job(db, latest.id) else None


def _is_fresh(path: FilePath, checkpoint: FilePath) -> bool:
    try:
        return path.lstat().st_mtime >= (checkpoint / checkpoints.WEIGHTS).stat().st_mtime and not path.is_symlink()
    except OSError:
        return False


@router.post("/fork", status_code=201)
@in_threads("files")
def fork(services: Services, parent: OwnedRun, caller: Caller, body: ForkRequest) -> Launched:
    """A new run that begins with the weights of a checkpoint, on the same environment and rows or on others."""
    given = {name: value for name, value in body.args.items() if value is not None}
    if "model" in given:
        raise UsageError("A fork keeps the model of its checkpoint. Leave `model` out.")
    checkpoint = _find(services, parent, body.checkpoint)
    changes = {name: value for name, value in given.items() if name not in (*RUN_PATHS, *SOURCES)}
    if "backend" in changes:
        raise UsageError("A fork keeps the trainer of its checkpoint. Leave `backend` out.")
    asked = {**parent.asked, **changes}
    # What the parent was launched with was checked then; its model may be of a place the list does not have.
    args, warnings = check_launch_args(specs(), changes)
    args = {name: changes.get(name, parent.args.get(name, default)) for name, default in args.items()}
    sources = _sources(services, caller, parent, given)
    with services.database.write() as db:
        run = runs.create(
            db,
            owner_id=caller.user_id,
            name=body.name or f"{parent.name} from {checkpoint.name}"[:300],
            kind="simple" if parent.kind == "sft" else parent.kind,
            args=args,
            asked=asked,
            paths=sources.paths,
            blobs=sources.blobs,
            total_steps=total_steps(args, sources.rows),
            parent={"run_id": parent.id, "checkpoint": checkpoint.name},
        )
        services.vault.copy(db, parent.id, run.id)
        forks.link_parent(services.data.run(parent.id), services.data.run(run.id), checkpoint)
        jobs.enqueue(db, run.id)
        caller.note(db, "run.fork", run.id, parent=parent.id, checkpoint=checkpoint.name)
    return Launched(run_id=run.id, warnings=warnings + sources.warnings)


def _sources(services: Services, caller: Principal, parent: Run, given: Mapping[str, Any]) -> Sources:
    """The parent's, or those the fork names."""
    if not given.keys().isdisjoint((*RUN_PATHS, *SOURCES)) or parent.kind == "sft":
        return checked_sources(services, caller.user_id, given)
    train = "train_dataset_path"
    rows = StoredRows(services.blobs, parent.blobs[train], parent.paths[train])
    return Sources(parent.paths, parent.blobs, rows.number(), [])
