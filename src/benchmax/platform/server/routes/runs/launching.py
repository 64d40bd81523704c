"""Starting runs: what may be asked for, and the launch itself."""

from __future__ import annotations

from pathlib import PurePosixPath

from benchmax.errors import UsageError, did_you_mean
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.runs.launch_checks import RUN_TYPES, check_backend, specs
from benchmax.platform.server.services.runs.launch_sources import SOURCES, checked_sources, supervised_rows
from benchmax.platform.server.services.runs.run_views import environment_name
from benchmax.platform.server.threads import Router, in_threads
from benchmax.platform.store.accounts import secrets
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.wire import launches as wire
from benchmax.platform.wire.launch_args import sft_args, sft_steps, total_steps
from benchmax.trainer.backend import EMBEDDED

router = Router(tags=["launch"])


@router.get("/v1/train/launch-args")
def list_launch_args(caller: Caller) -> wire.LaunchArgs:
    """The launch arguments, with defaults chosen for this machine."""
    return wire.LaunchArgs(args=specs())


@router.post("/v1/train/runs/launch", status_code=201)
@in_threads("files")
def launch(services: Services, caller: Caller, body: wire.LaunchRequest) -> wire.Launched:
    """Check the uploads and the arguments, then queue the run."""
    _check_type(body.type)
    _check_secrets(body.extra_secrets)
    given = {name: value for name, value in body.args.items() if name not in (*wire.RUN_PATHS, *SOURCES)}
    args, warnings = wire.check_launch_args(specs(), given)
    with services.database.read() as db:
        stored = [secret.name for secret in secrets.names(db, caller.user_id)]
    check_backend(given, {*stored, *body.extra_secrets})
    sources = checked_sources(services, caller.user_id, body.args)
    with services.database.write() as db:
        run = runs.create(
            db,
            owner_id=caller.user_id,
            name=body.name or environment_name(sources.paths["env_cls_path"]) or "run",
            kind=body.type,
            args=args,
            asked={name: value for name, value in given.items() if value is not None},
            paths=sources.paths,
            blobs=sources.blobs,
            total_steps=total_steps(args, sources.rows),
        )
        for name, value in body.extra_secrets.items():
            services.vault.put(db, caller.user_id, name, value, run.id)
        jobs.enqueue(db, run.id)
        caller.note(db, "run.launch", run.id, name=run.name)
    return wire.Launched(run_id=run.id, warnings=warnings + sources.warnings)


@router.post("/v1/train/runs/sft", status_code=201)
@in_threads("files")
def launch_sft(services: Services, caller: Caller, body: wire.SftRequest) -> wire.Launched:
    """A supervised run: rows are chats that end with the assistant, or a `prompt` with a `completion`."""
    given, unused = sft_args({**body.args, **({"model": body.model} if body.model else {})})
    args, warnings = wire.check_launch_args(specs(), given)
    if args["backend"] != EMBEDDED:
        raise UsageError("A supervised run is trained by the embedded trainer alone. Leave `backend` out.")
    if unused:
        warnings.append(f"Not used in a supervised run here: {', '.join(unused)}.")
    path, sha256, rows, held_out = supervised_rows(
        services, caller.user_id, body.dataset, held_out=body.eval.rows if body.eval else 0
    )
    if held_out >= rows:
        raise UsageError(f"eval.rows is {held_out} of {rows} rows. Leave some to learn from.")
    with services.database.write() as db:
        run = runs.create(
            db,
            owner_id=caller.user_id,
            name=body.name or f"sft {PurePosixPath(body.dataset.path).stem}",
            kind="sft",
            args={**args, "eval_rows": held_out},
            asked=given,
            paths={"train_dataset_path": path},
            blobs={"train_dataset_path": sha256},
            total_steps=sft_steps(args, rows - held_out),
        )
        jobs.enqueue(db, run.id)
        caller.note(db, "run.launch", run.id, name=run.name)
    return wire.Launched(run_id=run.id, warnings=warnings)


def _check_type(kind: str) -> None:
    if kind not in RUN_TYPES:
        hint = did_you_mean(kind, RUN_TYPES) or f"Use one of {', '.join(RUN_TYPES)}."
        raise UsageError(f"There is no training run type {kind[:40]!r}. {hint}")


def _check_secrets(values: dict[str, str]) -> None:
    for name, value in values.items():
        if not name.isidentifier() or len(name) > 200 or len(value) > 65_536 or "\0" in value:
            raise UsageError(f"extraSecrets: {name[:80]!r} cannot be an environment variable. Give NAME: value pairs.")
