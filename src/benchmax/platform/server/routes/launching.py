"""Starting runs: what may be asked for, and the launch itself."""

from __future__ import annotations

import difflib
from typing import Any

from fastapi import APIRouter

from benchmax.errors import UsageError
from benchmax.platform.launch_args import total_steps
from benchmax.platform.schemas import RUN_PATHS, LaunchArgs, Launched, LaunchRequest, check_launch_args
from benchmax.platform.server.auth import Caller
from benchmax.platform.server.launch import RUN_TYPES, Assets, specs
from benchmax.platform.server.platform import Here
from benchmax.platform.server.problems import Refused
from benchmax.platform.store import jobs, runs

router = APIRouter(tags=["launch"])

_LATER = "This server cannot do that yet. "


@router.get("/v1/train/launch-args")
def list_launch_args(caller: Caller) -> LaunchArgs:
    """The launch arguments, with defaults chosen for this machine."""
    return LaunchArgs(args=specs())


@router.post("/v1/train/runs/launch", status_code=201)
def launch(here: Here, caller: Caller, body: LaunchRequest) -> Launched:
    """Check the uploads and the arguments, then queue the run."""
    _check_type(body.type)
    _check_secrets(body.extra_secrets)
    given = {name: value for name, value in body.args.items() if name not in RUN_PATHS}
    args, warnings = check_launch_args(specs(), given)
    with here.database.read() as session:
        assets = Assets(session, here.blobs, caller.user_id, body.args)
    assets.check_bundle()
    rows, more = assets.check_rows()
    with here.database.write() as session:
        run = runs.create(
            session,
            owner_id=caller.user_id,
            name=body.name or _name(assets.paths["env_cls_path"]),
            kind=body.type,
            args=args,
            paths=assets.paths,
            blobs=assets.blobs,
            total_steps=total_steps(args, rows),
        )
        for name, value in body.extra_secrets.items():
            here.vault.put(session, caller.user_id, name, value, run.id)
        jobs.enqueue(session, run.id)
        caller.note(session, "run.launch", run.id, name=run.name)
    return Launched(run_id=run.id, warnings=warnings + more)


@router.post("/v1/train/runs/sft", responses={501: {}})
def launch_sft(caller: Caller, body: dict[str, Any]) -> Launched:
    """Supervised runs; not on this server yet."""
    raise Refused(501, _LATER + "Use `benchmax train --sft.data FILE` for a supervised warm start.")


@router.post("/v1/rollout/stream", responses={501: {}})
def stream_rollout(caller: Caller, body: dict[str, Any]) -> dict[str, Any]:
    """One rollout, streamed; not on this server yet."""
    raise Refused(501, _LATER + "Check the environment here with `benchmax validate`, or validate_env(…, local=True).")


@router.post("/v1/rollout/batch/stream", responses={501: {}})
def stream_batch(caller: Caller, body: dict[str, Any]) -> dict[str, Any]:
    """A group of rollouts, streamed; not on this server yet."""
    raise Refused(501, _LATER + "Check the environment here with `benchmax validate`, or validate_env(…, local=True).")


def _check_type(kind: str) -> None:
    if kind not in RUN_TYPES:
        close = difflib.get_close_matches(kind, RUN_TYPES, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Use one of {', '.join(RUN_TYPES)}."
        raise UsageError(f"There is no training run type {kind[:40]!r}. {hint}")


def _check_secrets(values: dict[str, str]) -> None:
    for name, value in values.items():
        if not name.isidentifier() or len(name) > 200 or len(value) > 65_536 or "\0" in value:
            raise UsageError(f"extraSecrets: {name[:80]!r} cannot be an environment variable. Give NAME: value pairs.")


def _name(path: str) -> str:
    """`envs/<run name>/<digest>/env-cls.pkl` → the run's name."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else "run"
