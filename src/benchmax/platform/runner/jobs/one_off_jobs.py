"""Errands as jobs: an environment examined by the doctor, a checkpoint made into a file to download.

Each has a folder of its own, made from blobs and removed when the child has ended. What it found is in the database,
what it made is in the run's `exports/`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from benchmax.errors import NotFoundError, UsageError
from benchmax.files.links import read_plain
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.platform.runner.children.child_files import LAUNCH_FILE, write_note
from benchmax.platform.runner.ingest import Ingest, NothingToRead
from benchmax.platform.runner.jobs.job import Training
from benchmax.platform.runner.jobs.preparation import place
from benchmax.platform.store.queue import one_off_jobs as errands
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import OneOffJob
from benchmax.platform.store.text import clean_json
from benchmax.platform.store.uploads.blobs import BlobStore

REPORT = "report.json"
REPORT_BYTES = 8 * 1024 * 1024


class Errands(Training):
    """What is the same for all of them."""

    __slots__ = ()

    @property
    def errand_id(self) -> str:
        return str(self.job.eval_id)

    @property
    def folder(self) -> Path:
        return self.data.root / "errands" / self.errand_id

    def prepare(self) -> dict[str, Any]:
        with self.database.write() as session:
            row = self._errand(session)
            errands.set_status(session, row.id, "active", "starting")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_note(self.folder / LAUNCH_FILE, self.launch(row))
        return {"variables": self.secrets()}

    def launch(self, row: OneOffJob) -> Mapping[str, Any]:
        """What the child is told; files it needs are put into the folder."""
        raise NotImplementedError

    def secrets(self) -> dict[str, str]:
        with self.database.read() as session:
            row = session.get(OneOffJob, self.errand_id)
            return {} if row is None else dict(self.vault.for_run(session, row.owner_id, ""))

    def reader(self) -> Ingest:
        return NothingToRead(self.database, "", self.folder)

    def cancelled(self, session: Session) -> bool:
        row = session.get(OneOffJob, self.errand_id)
        return row is None or (row.run_id is not None and runs.get(session, row.run_id) is None)

    def tell(self, phase: str, working: bool) -> None:
        if phase:
            with self.database.write() as session:
                errands.set_status(session, self.errand_id, "active", phase)

    def mark(self, session: Session, status: str, reason: str) -> None:
        if status == "pending":
            errands.set_status(session, self.errand_id, "queued", reason)
            return
        try:
            hide = Redactor(self.secrets().values())
        except UsageError as error:  # what cannot be hidden is not told
            status, reason, hide = "failed", str(error), Redactor(())
        status = "complete" if status == "complete" else "failed"
        result = self._result(hide) if status == "complete" else None
        errands.set_status(session, self.errand_id, status, hide(reason), result)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _result(self, hide: Redactor) -> dict[str, Any]:
        path = self.folder / REPORT
        try:
            text = read_plain(path.parent, path.name, REPORT_BYTES).decode("utf-8", "replace")
            value = clean_json(hide_texts(json.loads(text), hide))
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def _errand(self, session: Session) -> OneOffJob:
        row = session.get(OneOffJob, self.errand_id)
        if row is None:
            raise NotFoundError("What was asked for is gone. Ask again.")
        return row


class Examining(Errands):
    """The doctor looks at an environment."""

    __slots__ = ()
    module = "benchmax.platform.runner.children.doctor_child"

    def launch(self, row: OneOffJob) -> Mapping[str, Any]:
        asked = row.options
        store = BlobStore(self.data.blobs)
        note: dict[str, Any] = {"venvs": str(self.data.venvs), "spec": asked.get("spec")}
        if "cls" in asked:
            note["cls"] = self._place(store, asked["cls"], "env-cls.pkl")
            note["metadata"] = self._place(store, asked["metadata"], "env-metadata.json")
        if "rows" in asked:
            suffix = PurePosixPath(asked["rows_path"]).suffix.lower()
            note["rows"] = self._place(store, asked["rows"], f"rows{suffix}")
        if asked.get("model"):
            note["model"] = asked["model"]
        return note

    def _place(self, store: BlobStore, sha256: str, name: str) -> str:
        target = self.folder / name
        place(store.path(sha256), target)
        return str(target)


class Exporting(Errands):
    """A checkpoint becomes one file."""

    __slots__ = ()
    module = "benchmax.platform.runner.children.export_child"

    def launch(self, row: OneOffJob) -> Mapping[str, Any]:
        return {"run_dir": str(self.data.run(self.job.run_id)), **row.options}

    def secrets(self) -> dict[str, str]:
        """None of the user's code runs."""
        return {}
