"""Environments: which there are, what is in them, and what the doctor says of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

from sqlalchemy.orm import Session

from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.routes.parameters import Id
from benchmax.platform.server.security.authentication import Caller
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import catalogue, models
from benchmax.platform.server.services.catalogue import Environment
from benchmax.platform.server.services.datasets import dataset_files
from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.server.threads import Router
from benchmax.platform.store.queue import one_off_jobs
from benchmax.platform.store.statements import get_if
from benchmax.platform.store.tables import OneOffJob
from benchmax.platform.wire import environments as wire

router = Router(prefix="/v1/environments", tags=["environments"])
"""An id may have slashes, as `reasoning/gcd` has; so longer paths come before `/{environment_id:path}` alone."""

MOST_AT_ONCE = 2
"""Examinations of one user at the same time: each is a process."""


@router.get("")
def list_environments(services: Services, caller: Caller) -> wire.EnvironmentList:
    """The built-in environments, then your uploads, newest first."""
    with services.database.read() as db:
        found = catalogue.all_environments(db, caller.user_id)
        tools = one_off_jobs.tools(db, caller.user_id)
    return wire.EnvironmentList(environments=[catalogue.info(services.blobs, each, tools) for each in found])


@router.post("/{environment_id:path}/doctor", status_code=201)
def start_doctor(
    services: Services, caller: Caller, environment_id: Id, body: wire.DoctorRequest | None = None
) -> wire.DoctorStarted:
    """Examine an environment on rows, in a process of its own; ask for the report until it is complete."""
    path = body.dataset_path if body else None
    with services.database.write() as db:
        found = catalogue.find(db, caller.user_id, environment_id)
        if one_off_jobs.going(db, caller.user_id, "doctor") >= MOST_AT_ONCE:
            raise Refused(429, "Two examinations are running already. Wait for one to end.", Retry_After="10")
        services.limiter.hit("doctor", caller.user_id)
        options = _files(db, caller.user_id, found, path) | _model(body)
        row = one_off_jobs.start(db, caller.user_id, "doctor", environment_id, options=options)
        caller.note(db, "environment.doctor", environment_id, report=row.id)
    return wire.DoctorStarted(report_id=row.id)


def _model(body: wire.DoctorRequest | None) -> dict[str, Any]:
    if body is None or body.model is None:
        return {}
    known = sorted(chain(*models.local_names()))
    if body.model not in known:
        raise UsageError(f"There is no model {body.model!r} here. Choose one of: {', '.join(known)}.")
    return {"model": body.model}


def _files(db: Session, owner_id: str, found: Environment, path: str | None) -> dict[str, Any]:
    """What the child needs: the blobs, or the name of a built-in, and the rows."""
    options: dict[str, Any] = {"spec": found.id}
    if found.uploaded is not None:
        options = {"cls": found.uploaded.cls_sha256, "metadata": found.uploaded.metadata_sha256}
    if path is not None:
        options |= {"rows": dataset_files.find(db, owner_id, path)[1].sha256, "rows_path": path}
    return options


@router.get("/{environment_id:path}/doctor")
def list_reports(services: Services, caller: Caller, environment_id: Id) -> wire.DoctorReports:
    """The doctor's reports on an environment, newest first."""
    with services.database.read() as db:
        catalogue.find(db, caller.user_id, environment_id)
        found = one_off_jobs.of_subject(db, caller.user_id, "doctor", environment_id)
    return wire.DoctorReports(reports=[report_info(row) for row in found])


@router.get("/{environment_id:path}/doctor/{report_id}")
def get_report(services: Services, caller: Caller, environment_id: Id, report_id: Id) -> wire.DoctorReport:
    """One report: how far it is, and when it is complete what was found."""
    with services.database.read() as db:
        row = get_if(db, OneOffJob, report_id, owner_id=caller.user_id, kind="doctor", subject=environment_id)
    return report_info(required(row, "There is no such report on this environment. POST …/doctor makes one."))


@router.get("/{environment_id:path}")
def get_environment(services: Services, caller: Caller, environment_id: Id) -> wire.EnvironmentDetails:
    """One environment, with its source and its manifest."""
    with services.database.read() as db:
        found = catalogue.find(db, caller.user_id, environment_id)
        tools = one_off_jobs.tools(db, caller.user_id)
    return catalogue.details(services.blobs, found, tools)


def report_info(row: OneOffJob) -> wire.DoctorReport:
    seen = row.result
    findings = [
        wire.DoctorFinding(**each, message=f"{each['title']} {each['fix']}") for each in seen.get("findings") or ()
    ]
    known = {name: seen[name] for name in ("ok", "rows", "examples", "seconds", "tools") if name in seen}
    parts = {name: seen.get(name) or [] for name in ("checks", "components", "answers")}
    parts |= {"model": row.options.get("model"), "signal": seen.get("signal") or None}
    return shape(wire.DoctorReport, row, environment=row.subject, findings=findings, **known, **parts)
