"""Trains a run, from its launch or from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from benchmax.platform.runner.children.child_files import read_child_file
from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.runner.jobs.job import LeasedJob, Reader
from benchmax.platform.runner.jobs.preparation import prepare
from benchmax.platform.store.runs import runs
from benchmax.platform.wire.values import RunStatus


class TrainJob(LeasedJob):
    """A run to train. Its folder is the run directory."""

    __slots__ = ()
    kind = "train"
    module = "benchmax.platform.runner.children.train_child"
    is_measured = True

    @property
    def folder(self) -> Path:
        return self.data.run(self.row.run_id)

    def prepare(self) -> dict[str, Any]:
        with self.database.write() as db:
            run = self.run(db)
            runs.set_status(db, run.id, "pending", "starting")
        prepare(self.data, run)
        return {"variables": self.secrets()}

    def reader(self) -> Reader:
        return Ingest(self.database, self.row.run_id, self.folder, self.secrets().values()).step

    def is_cancelled(self, db: Session) -> bool:
        return runs.is_to_stop(db, self.row.run_id)

    def is_working(self, pid: int) -> bool:
        return read_child_file(self.folder / "status.json").get("pid") == pid

    def report_phase(self, phase: str, working: bool) -> None:
        with self.database.read() as db:
            run = runs.get(db, self.row.run_id)
        if run is None:
            return
        if working and run.status != "active":
            with self.database.write() as db:
                runs.set_status(db, run.id, "active", "training")
        elif not working and phase and phase != run.activity:
            with self.database.write() as db:
                runs.set_progress(db, run.id, activity=phase)

    def finish(self, db: Session, status: RunStatus, reason: str) -> None:
        runs.set_status(db, self.row.run_id, status, self.redacted(reason))
