"""What a run's page shows besides its charts: settings, logs, the machine; and all runs as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from benchmax.files.atomic import object_in
from benchmax.files.links import open_plain, read_plain
from benchmax.platform.server.downloads import attachment
from benchmax.platform.server.routes.environments import report_info
from benchmax.platform.server.routes.parameters import Cursor, Limit
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.security.run_access import OwnedRun, VisibleRun
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import catalogue
from benchmax.platform.server.services.runs import run_logs
from benchmax.platform.server.services.runs.forks import CONFIG_BYTES
from benchmax.platform.server.services.runs.launch_checks import specs
from benchmax.platform.server.services.runs.run_logs import Process, Wanted
from benchmax.platform.server.services.runs.run_views import run_infos
from benchmax.platform.server.threads import Router
from benchmax.platform.store.clean_text import clean_json
from benchmax.platform.store.queue import one_off_jobs
from benchmax.platform.store.runs import metrics, run_summaries, runs
from benchmax.platform.store.tables import Run
from benchmax.platform.wire import runs as wire
from benchmax.platform.wire.environments import RunDoctor

router = Router(prefix="/v1/train", tags=["runs"])

_CSV = ("id", "name", "status", "statusReason", "createdAt", "startedAt", "endedAt", "elapsedSeconds", "model",
        "latestStep", "totalSteps", "rewardFirst", "rewardLatest", "evalRewardFirst", "evalRewardLatest", "errorRate",
        "pinned", "archived", "tags", "notes")  # fmt: skip
_MOST_RUNS = 10_000
RunIds = Annotated[str | None, Query(max_length=50_000, description="Ids with commas between.")]
_MOST_CURVES = 100
_CURVE_POINTS = 32
CurveIds = Annotated[str, Query(max_length=8_000, description="Ids with commas between, 100 at most.")]
_SYSTEM_BYTES = 8 * 1024 * 1024


@router.get("/runs.csv", response_class=StreamingResponse)
def list_runs_csv(services: Services, caller: Caller, ids: RunIds = None) -> StreamingResponse:
    """Your runs as a table, archived ones too; with `ids`, these alone, in that order."""
    with services.database.read() as db:
        found = runs.of_owner(db, caller.user_id, archived=None, limit=_MOST_RUNS)
        if ids is not None:
            by_id = {run.id: run for run in found}
            found = [by_id[each] for each in dict.fromkeys(ids.split(",")) if each in by_id]
        infos = run_infos(db, found, caller, services.data)
    headers = attachment("runs.csv") | {"Content-Type": "text/csv; charset=utf-8"}
    return StreamingResponse(_csv_lines(infos), headers=headers)


def _csv_lines(infos: list[wire.RunInfo]) -> Iterator[str]:
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(_CSV)
    for info in infos:
        values = info.model_dump(by_alias=True)
        table.writerow([_cell(values[name]) for name in _CSV])
        if out.tell() > 65_536:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet does not take for a formula."""
    if isinstance(value, list):
        value = ", ".join(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


@router.get("/curves")
def get_curves(services: Services, caller: Caller, ids: CurveIds) -> wire.RunCurves:
    """The training reward of your runs, small enough for a list of them."""
    wanted = set(ids.split(",")[:_MOST_CURVES])
    with services.database.read() as db:
        mine = db.scalars(select(Run.id).where(Run.id.in_(wanted), Run.owner_id == caller.user_id)).all()
        return wire.RunCurves(curves=metrics.curves(db, mine, run_summaries.REWARD, _CURVE_POINTS))


@router.get("/runs/{run_id}/doctor")
def get_doctor(services: Services, run: OwnedRun) -> RunDoctor:
    """What the doctor found in the environment of a run."""
    with services.database.read() as db:
        environment = catalogue.of_run(db, run)
        found = one_off_jobs.of_subject(db, run.owner_id, "doctor", environment) if environment else []
    rows = run.blobs.get("train_dataset_path")
    done = [each for each in found if each.status == "complete"]
    report = next((each for each in done if each.options.get("rows") == rows), done[0] if done else None)
    return RunDoctor(
        environment=environment,
        dataset_path=run.paths.get("train_dataset_path"),
        report=None if report is None else report_info(report),
        same_rows=report is not None and report.options.get("rows") == rows,
    )


@router.get("/runs/{run_id}/config")
def get_config(services: Services, run: VisibleRun) -> wire.RunConfig:
    """The launch arguments, which of them were given, and every setting they became."""
    known = {spec.name: spec for spec in specs()}
    args = [
        wire.LaunchedArg(
            name=name,
            label=known[name].label if name in known else name,
            value=value,
            default=known[name].default if name in known else None,
            given=name in run.asked,
        )
        for name, value in run.args.items()
    ]
    try:
        text = read_plain(services.data.run(run.id), "config.json", CONFIG_BYTES).decode()
        # Where things lie on the server is the server's own business.
        settings = clean_json(object_in(text.replace(f"{services.data.root}/", "")))
    except (OSError, ValueError, RecursionError):
        settings = None
    return wire.RunConfig(type=run.kind, args=args, paths=run.paths, parent=run.parent, settings=settings)


@router.get("/runs/{run_id}/logs")
def get_process_logs(
    services: Services,
    run: OwnedRun,
    process: Process = "child",
    level: Annotated[str | None, Query(pattern="^(DEBUG|INFO|WARNING|ERROR|CRITICAL)$")] = None,
    after: Cursor = 0,
    limit: Limit = 500,
    tail: bool = False,
) -> wire.LogPage:
    """Lines of one process, oldest first, from `after` on; with `tail` the last ones."""
    wanted = Wanted(level, after, limit, tail)
    if process == "environment":
        with services.database.read() as db:
            return run_logs.of_environment(db, run.id, wanted)
    return run_logs.of_file(services.data.run(run.id), process, wanted, run.started or run.created)


@router.get("/runs/{run_id}/system")
def get_system(
    services: Services, run: VisibleRun, limit: Annotated[int, Query(ge=2, le=5000)] = 720
) -> wire.SystemSeries:
    """What the run's processes used of the machine; thinned evenly to `limit` points."""
    try:
        with open_plain(services.data.run(run.id), "system.jsonl") as file:
            file.seek(max(0, file.seek(0, 2) - _SYSTEM_BYTES))
            lines = file.read().splitlines()
    except OSError:
        lines = []
    every = max(1, -(-len(lines) // limit))
    chosen = [line for at, line in enumerate(lines) if (len(lines) - 1 - at) % every == 0]
    found = [sample for line in chosen if (sample := _sample(line)) is not None]
    return wire.SystemSeries(points=list(found), now=found[-1] if found else None)


def _sample(line: bytes) -> wire.SystemNow | None:
    """A line's sample; None for a torn line, the first or the last."""
    try:
        return wire.SystemNow.model_validate_json(line)
    except ValueError:
        return None
