"""Runs as the wire shows them."""

from __future__ import annotations

import hashlib
import time

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from benchmax.files.logs import modified_at
from benchmax.platform.server.security.authentication import Principal
from benchmax.platform.server.services.runs.launch_checks import FINGERPRINT
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import run_summaries
from benchmax.platform.store.runs.run_summaries import RunSummary
from benchmax.platform.store.tables import Job, Run
from benchmax.platform.store.uploads.uploads import BUILT_IN_ENVS
from benchmax.platform.wire.runs import RunInfo
from benchmax.platform.wire.values import ENDED

_WITH_JOB = select(Job.run_id).where(Job.run_id.in_(bindparam("ids", expanding=True))).distinct()


def run_info(db: Session, run: Run, caller: Principal | None, data: DataDir, *, config: bool = False) -> RunInfo:
    return run_infos(db, [run], caller, data, config=config)[0]


def latest_step(run: Run) -> int | None:
    """How far a run is; while it runs, including steps it repeats from a checkpoint."""
    if run.status in ENDED or run.furthest_step is None:
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
        shape(
            RunInfo,
            run,
            is_owner=(own := caller is not None and run.owner_id == caller.user_id),
            notes=run.notes if own else "",
            has_launcher_job=run.id in with_job,
            latest_step=latest_step(run),
            launcher_args={**run.args, **run.paths, "type": run.kind} if config else None,
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
    parts = path.removeprefix(BUILT_IN_ENVS).split("/")
    return parts[0] if path.startswith(BUILT_IN_ENVS) else parts[1] if len(parts) > 2 else ""


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
    if run.status in ENDED:
        return run.ended
    return max(modified_at(data.run(run.id) / name) for name in ("status.json", "child.json")) or None
