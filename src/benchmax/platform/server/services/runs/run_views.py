"""Rows of the store as shapes of the wire: runs, log lines, evaluations, keys."""

from __future__ import annotations

import hashlib
import time
from typing import Annotated

from fastapi import Query
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from benchmax.platform.server.security.authentication import Principal
from benchmax.platform.server.services.runs.launch import FINGERPRINT
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import run_summaries
from benchmax.platform.store.runs.run_summaries import RunSummary
from benchmax.platform.store.tables import TERMINAL, ApiKey, EnvLog, Eval, Job, Run
from benchmax.platform.store.uploads.uploads import OURS
from benchmax.platform.wire.accounts import KeyInfo
from benchmax.platform.wire.evals import EvalInfo
from benchmax.platform.wire.runs import EnvLogLine, RunInfo

Page = Annotated[int, Query(ge=1, le=100_000)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Mode = Annotated[str, Query(max_length=40)]
EvalId = Annotated[str | None, Query(alias="externalEvalId", max_length=80)]

_WITH_JOB = select(Job.run_id).where(Job.run_id.in_(bindparam("ids", expanding=True))).distinct()


def run_info(db: Session, run: Run, caller: Principal | None, data: DataDir, *, config: bool = False) -> RunInfo:
    return run_infos(db, [run], caller, data, config=config)[0]


def latest_step(run: Run) -> int | None:
    """How far a run is; while it runs, including steps it repeats from a checkpoint."""
    if run.status in TERMINAL or run.furthest_step is None:
        return run.latest_step
    return max(run.furthest_step, run.latest_step or 0)


def run_infos(
    db: Session, found: list[Run], caller: Principal | None, data: DataDir, *, config: bool = False
) -> list[RunInfo]:
    """Rows of a list. Two queries, however many runs there are."""
    ids = [run.id for run in found]
    with_job = set(db.scalars(_WITH_JOB, {"ids": ids}))
    summaries = run_summaries.of_runs(db, ids)
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
            latest_step=latest_step(run),
            latest_activity_message=run.activity,
            launcher_args={**run.args, **run.paths, "type": run.kind} if config else None,
            pinned=run.pinned,
            notes=run.notes if caller is not None and run.owner_id == caller.user_id else "",
            type=run.kind,
            parent_run_id=run.parent.get("run_id"),
            model=str(run.args.get("model") or ""),
            environment=environment_name(run.paths.get("env_cls_path", "")),
            task_digest=_task_digest(run),
            given={name: value for name, value in run.asked.items() if name != "model"},
            heartbeat_at=_heartbeat(run, data),
            **_summary(run, summaries[run.id]),
        )
        for run in found
    ]


def environment_name(path: str) -> str:
    """`envs/<name>/<digest>/env-cls.pkl` → the name; empty where the path has none."""
    parts = path.removeprefix(OURS).split("/")
    return parts[0] if path.startswith(OURS) else parts[1] if len(parts) > 2 else ""


def _task_digest(run: Run) -> str:
    """Equal for runs that train on the same rows of the same environment."""
    files = ("train_dataset_path", "eval_dataset_path")
    packed = (FINGERPRINT,) if FINGERPRINT in run.blobs else ("env_cls_path", "env_metadata_path")
    known = [run.blobs.get(name, "") for name in (*packed, *files)]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()[:16] if any(known) else ""


def _summary(run: Run, summary: RunSummary) -> dict[str, float | None]:
    elapsed = None if run.started is None else max(0.0, (run.ended or time.time()) - run.started)
    train, held_out = summary.train, summary.eval
    return {
        "elapsed_seconds": elapsed,
        "eta_seconds": _seconds_left(run, summary, elapsed),
        "reward_first": train[0].value if train else None,
        "reward_latest": train[1].value if train else None,
        "eval_reward_first": held_out[0].value if held_out else None,
        "eval_reward_latest": held_out[1].value if held_out else None,
        "error_rate": summary.failed,
    }


def _seconds_left(run: Run, summary: RunSummary, elapsed: float | None) -> float | None:
    """Until the last step, or until the time asked for is over."""
    if run.status != "active" or elapsed is None:
        return None
    left, most = summary.seconds_left(run.total_steps, elapsed), run.args.get("max_minutes")
    if left is None or not isinstance(most, int | float):
        return left
    return min(left, max(0.0, 60.0 * most - elapsed))


def _heartbeat(run: Run, data: DataDir) -> float | None:
    """When its process last reported; only a running one is looked up on disk."""
    if run.started is None and run.status != "active":
        return None
    if run.status in TERMINAL:
        return run.ended
    beats = []
    for name in ("status.json", "child.json"):
        try:
            beats.append((data.run(run.id) / name).stat().st_mtime)
        except OSError:
            continue
    return max(beats, default=None)


def log_line(line: EnvLog) -> EnvLogLine:
    return EnvLogLine(
        id=line.id,
        rollout_id=line.rollout_id,
        step=line.step,
        created_at=line.time,
        level=line.level,
        message=line.message,
        content=line.message,
        traceback=line.traceback,
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
