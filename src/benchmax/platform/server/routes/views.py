"""Rows as the wire shows them, and runs as a caller may see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.platform.account_schemas import KeyInfo
from benchmax.platform.schemas import EvalInfo, RunEvent, RunInfo
from benchmax.platform.server.auth import MaybeCaller, Principal
from benchmax.platform.server.platform import Here
from benchmax.platform.server.problems import Refused
from benchmax.platform.store import runs
from benchmax.platform.store.tables import ApiKey, Eval, Event, Job, Run

RunId = Annotated[str, Path(max_length=80)]
Page = Annotated[int, Query(ge=1, le=100_000)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Mode = Annotated[str, Query(max_length=40)]
EvalId = Annotated[str | None, Query(alias="externalEvalId", max_length=80)]

NOT_FOUND = "There is no such run, or it is not yours. GET /v1/train/runs lists yours."


def visible_run(run_id: RunId, here: Here, caller: MaybeCaller) -> Run:
    """The run, when the caller may see it. A stranger is told to sign in, not whether it exists."""
    with here.database.read() as session:
        run = runs.visible(session, run_id, caller.user_id if caller else None)
    if run is None:
        raise Refused(404, NOT_FOUND) if caller else Refused(401, "This needs an API key.", WWW_Authenticate="Bearer")
    return run


VisibleRun = Annotated[Run, Depends(visible_run)]


@contextmanager
def own_run(here: Any, run_id: str, caller: Principal) -> Iterator[tuple[Session, Run]]:
    """A transaction on a run of the caller's own; 404 when it is not to be seen, 403 when it is another's."""
    with here.database.write() as session:
        run = runs.visible(session, run_id, caller.user_id)
        if run is None:
            raise Refused(404, NOT_FOUND)
        if run.owner_id != caller.user_id:
            raise Refused(403, "Only the owner of a run may do this.")
        yield session, run


def run_info(session: Session, run: Run, caller: Principal | None, *, config: bool = False) -> RunInfo:
    return run_infos(session, [run], caller, config=config)[0]


def run_infos(session: Session, found: list[Run], caller: Principal | None, *, config: bool = False) -> list[RunInfo]:
    ids = [run.id for run in found]
    with_job = set(session.scalars(select(Job.run_id).where(Job.run_id.in_(ids)).distinct()))
    return [
        RunInfo(
            id=run.id,
            name=run.name,
            status=run.status,
            status_reason=run.reason,
            created_at=run.created,
            updated_at=run.updated,
            started_at=run.started,
            ended_at=run.ended,
            is_public=run.is_public,
            is_owner=caller is not None and run.owner_id == caller.user_id,
            has_launcher_job=run.id in with_job,
            archived=run.archived,
            tags=run.tags,
            total_steps=run.total_steps,
            latest_step=run.latest_step,
            latest_activity_message=run.activity,
            launcher_args={**run.args, **run.paths, "type": run.kind} if config else None,
        )
        for run in found
    ]


def event_info(event: Event) -> RunEvent:
    return RunEvent(
        id=event.id,
        created_at=event.time,
        category=event.category,
        type=event.kind,
        message=event.message,
        data=event.data,
    )


def eval_info(row: Eval) -> EvalInfo:
    return EvalInfo(
        id=row.id,
        name=row.name,
        model=row.model,
        status=row.status,
        status_reason=row.reason,
        done=row.done,
        total=row.total,
        summary=row.summary,
        created_at=row.created,
        ended_at=row.ended,
    )


def key_info(key: ApiKey) -> KeyInfo:
    return KeyInfo(
        id=key.id,
        name=key.name,
        prefix=key.prefix,
        scopes=key.scopes,
        created_at=key.created,
        expires_at=key.expires,
        last_used_at=key.last_used,
        revoked=key.revoked is not None,
    )
