"""Who may read or change a run: its owner everything, others what is shown of a run that is public.

The middleware looks a run up once for each request that names one (`find_readable`), and again while a stream is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Path, Request
from sqlalchemy.orm import Session

from benchmax.platform.server.error_responses import Refused, required
from benchmax.platform.server.security.authentication import NEEDS_KEY, Caller, MaybeCaller, Principal, unauthenticated
from benchmax.platform.server.server_services import Services
from benchmax.platform.store.database import Database
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import Run

RunId = Annotated[str, Path(max_length=80)]
NOT_FOUND = "There is no such run, or it is not yours. `benchmax runs list` shows yours."


def find_readable(database: Database, run_id: str, caller: Principal | None) -> Run | None:
    """The run, when the caller may read it: its own, or a public one. None also when there is no such run."""
    if not (run_id.isascii() and run_id.replace("_", "").isalnum()):
        return None
    with database.read() as db:
        return runs.visible(db, run_id, caller.user_id if caller else None)


async def visible_run(run_id: RunId, request: Request, caller: MaybeCaller) -> Run:
    """The run of a readable request. Without credentials the answer is 401 whether or not there is such a run."""
    run: Run | None = request.scope.get("run")
    if run is None or run.id != run_id:
        raise Refused(404, NOT_FOUND) if caller else unauthenticated(NEEDS_KEY)
    return run


VisibleRun = Annotated[Run, Depends(visible_run)]


async def owned_run(run: VisibleRun, caller: Caller) -> Run:
    """The caller's own run, for what is not shown of public runs; 404 otherwise."""
    if run.owner_id != caller.user_id:
        raise Refused(404, NOT_FOUND)
    return run


OwnedRun = Annotated[Run, Depends(owned_run)]


@contextmanager
def own_run(services: Services, run_id: str, caller: Principal) -> Iterator[tuple[Session, Run]]:
    """A transaction on the caller's own run; 404 when it may not be read, 403 when it is another's public run."""
    with services.database.write() as db:
        run = required(runs.visible(db, run_id, caller.user_id), NOT_FOUND)
        if run.owner_id != caller.user_id:
            raise Refused(403, "Only the owner of a run may do this.")
        yield db, run
