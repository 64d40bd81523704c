"""Ends jobs that were cancelled, lost, forgotten or deleted, and shows waiting runs their place in the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from benchmax.files.temp_dirs import remove_tree
from benchmax.platform.runner.jobs.job import LeasedJob
from benchmax.platform.runner.jobs.leases import Leases
from benchmax.platform.store import tables
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.queue.jobs import HEARTBEAT_SECONDS
from benchmax.platform.store.runs import runs

logger = logging.getLogger(__name__)


@contextmanager
def logged_trouble(name: object) -> Iterator[None]:
    """Log whatever goes wrong with one job or session, so that the others go on."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        logger.warning("%s cannot be looked after now: %s", name, error)
    except Exception:
        logger.exception("%s cannot be looked after now", name)


def keep_up(
    database: Database,
    data: DataDir,
    leases: Leases,
    watched: Collection[int],
    open_job: Callable[[tables.Job], LeasedJob],
) -> None:
    """One round. `watched` are the jobs that this supervisor runs."""
    with database.read() as db:
        forgotten = [row for row in jobs.leased(db, leases.holder.id) if row.id not in watched]
        dropped = jobs.to_drop(db)
        lost = jobs.without_job(db)
        deleted = jobs.deleted_runs(db)
        queued = jobs.waiting_runs(db)
    for row in forgotten:  # leased and, for want of a disk or a database, never begun
        with database.write() as db:
            jobs.give_back(db, row.id, leases.holder, attempts=row.attempts, delay=HEARTBEAT_SECONDS)
    for row in dropped:
        with database.write() as db:
            if jobs.drop(db, row.id):
                open_job(row).finish(db, "cancelled", "The run was stopped before it began.")
    for run_id in lost:
        with database.write() as db:
            runs.set_status(db, run_id, "failed", "Nothing was left that would run it. Launch it again.")
    for run_id in deleted:
        remove_tree(data.run(run_id))
        with database.write() as db:
            runs.remove(db, run_id)
    for place, (run_id, activity) in enumerate(queued):
        _report_place(database, run_id, activity, place)


def _report_place(database: Database, run_id: str, activity: str, place: int) -> None:
    """Store how many runs come before one that waits."""
    text = "waiting for a free slot" + (f", {place} before it" if place else "")
    if text != activity:
        with database.write() as db:
            runs.set_progress(db, run_id, activity=text)
