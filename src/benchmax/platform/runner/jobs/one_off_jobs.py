"""One-off jobs: the doctor examines an environment, a checkpoint becomes a file to download.

Each has a folder of its own, made from blobs and removed when the child has ended. What it found is in the database,
what it made is in the run's `exports/`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from benchmax.errors import NotFoundError, UsageError
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.files.temp_dirs import remove_tree
from benchmax.platform.runner.children.child_files import LAUNCH_FILE, REPORT_FILE, read_child_file, write_child_file
from benchmax.platform.runner.jobs.job import LeasedJob
from benchmax.platform.runner.jobs.preparation import place
from benchmax.platform.store import tables
from benchmax.platform.store.clean_text import clean_json
from benchmax.platform.store.queue import one_off_jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.wire.values import RunStatus

REPORT_BYTES = 8 * 1024 * 1024


class LeasedOneOffJob(LeasedJob):
    """What all of them share."""

    __slots__ = ()

    @property
    def one_off_id(self) -> str:
        return str(self.row.one_off_id)

    @property
    def folder(self) -> Path:
        return self.data.root / "one_off_jobs" / self.one_off_id

    def prepare(self) -> dict[str, Any]:
        with self.database.write() as db:
            asked = db.get(tables.OneOffJob, self.one_off_id)
            if asked is None:
                raise NotFoundError("What was asked for is gone. Ask again.")
            one_off_jobs.set_status(db, asked.id, "active", "starting")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_child_file(self.folder / LAUNCH_FILE, self.launch(asked))
        return {"variables": self.secrets()}

    @abstractmethod
    def launch(self, asked: tables.OneOffJob) -> Mapping[str, Any]:
        """The child's launch.json; files it needs are put into the folder."""

    def secrets(self) -> dict[str, str]:
        with self.database.read() as db:
            asked = db.get(tables.OneOffJob, self.one_off_id)
            return {} if asked is None else dict(self.vault.for_run(db, asked.owner_id, ""))

    def is_cancelled(self, db: Session) -> bool:
        asked = db.get(tables.OneOffJob, self.one_off_id)
        return asked is None or (asked.run_id is not None and runs.get(db, asked.run_id) is None)

    def report_phase(self, phase: str, working: bool) -> None:
        if phase:
            with self.database.write() as db:
                one_off_jobs.set_status(db, self.one_off_id, "active", phase)

    def finish(self, db: Session, status: RunStatus, reason: str) -> None:
        if status == "pending":
            one_off_jobs.set_status(db, self.one_off_id, "queued", reason)
            return
        try:
            hide = Redactor(self.secrets().values())
        except UsageError as error:  # without the secrets nothing can be redacted, so nothing is shown
            status, reason, hide = "failed", str(error), Redactor(())
        status = "complete" if status == "complete" else "failed"
        result = self._result(hide) if status == "complete" else None
        one_off_jobs.set_status(db, self.one_off_id, status, hide(reason), result)
        remove_tree(self.folder)

    def _result(self, hide: Redactor) -> dict[str, Any]:
        try:
            result: dict[str, Any] = clean_json(
                hide_texts(read_child_file(self.folder / REPORT_FILE, REPORT_BYTES), hide)
            )
        except RecursionError:
            return {}
        return result


class DoctorJob(LeasedOneOffJob):
    """The doctor examines an environment."""

    __slots__ = ()
    kind = "doctor"
    module = "benchmax.platform.runner.children.doctor_child"

    def launch(self, asked: tables.OneOffJob) -> Mapping[str, Any]:
        options = asked.options
        launch: dict[str, Any] = {"spec": options.get("spec")}
        rows = f"rows{PurePosixPath(options.get('rows_path', '')).suffix.lower()}"
        files = {"cls": "env-cls.pkl", "metadata": "env-metadata.json", "rows": rows}
        for name in files.keys() & options.keys():
            launch[name] = place(self.data, options[name], self.folder / files[name])
        if options.get("model"):
            launch["model"] = options["model"]
        return launch


class ExportJob(LeasedOneOffJob):
    """A checkpoint becomes one file."""

    __slots__ = ()
    kind = "export"
    module = "benchmax.platform.runner.children.export_child"

    def launch(self, asked: tables.OneOffJob) -> Mapping[str, Any]:
        return {"run_dir": str(self.data.run(self.row.run_id)), **asked.options}

    def secrets(self) -> dict[str, str]:
        """None of the user's code runs."""
        return {}
