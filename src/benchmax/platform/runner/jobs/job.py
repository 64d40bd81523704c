"""What a job is about: a run to train, or an evaluation of one. The supervisor does the rest alike for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from benchmax.errors import NotFoundError, UsageError
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.platform.runner.children.child_files import LAUNCH_FILE, read_note, write_note
from benchmax.platform.runner.ingest import EvalIngest, Ingest
from benchmax.platform.runner.jobs.preparation import FILES, place, prepare
from benchmax.platform.store.accounts import users
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import evals, runs
from benchmax.platform.store.tables import Endpoint, Eval, Job, Run, Secret
from benchmax.platform.store.uploads.blobs import BlobStore

REPORT, PLAN = "report.json", "plan.json"


@dataclass(slots=True)
class Training:
    """A run, from its launch or from its last checkpoint."""

    database: Database
    data: DataDir
    vault: Vault
    job: Job

    module = "benchmax.platform.runner.children.train_child"

    @property
    def folder(self) -> Path:
        """Where the child works and leaves its notes."""
        return self.data.run(self.job.run_id)

    def prepare(self) -> dict[str, Any]:
        """Make the folder ready; gives what only the child may know."""
        with self.database.write() as session:
            run = self._run(session)
            runs.set_status(session, run.id, "pending", "starting")
        prepare(self.data, run)
        return {"variables": self.secrets()}

    def secrets(self) -> dict[str, str]:
        with self.database.read() as session:
            run = session.get(Run, self.job.run_id)
            return {} if run is None else dict(self.vault.for_run(session, run.owner_id, run.id))

    def reader(self) -> Ingest:
        return Ingest(self.database, self.job.run_id, self.folder, self.secrets().values())

    def cancelled(self, session: Session) -> bool:
        return bool(runs.to_cancel(session, [self.job.run_id]))

    def tell(self, phase: str, working: bool) -> None:
        """Pass on what the child says it does."""
        with self.database.read() as session:
            run = runs.get(session, self.job.run_id)
        if run is not None and working and run.status != "active":
            with self.database.write() as session:
                runs.set_status(session, run.id, "active", "training")
        if run is not None and not working and phase and phase != run.activity:
            with self.database.write() as session:
                runs.set_progress(session, run.id, activity=phase)

    def mark(self, session: Session, status: str, reason: str) -> None:
        runs.set_status(session, self.job.run_id, status, self.told(reason))

    def told(self, words: Any) -> Any:
        """Words or a JSON value for all who may see the run, without its secrets."""
        try:
            return hide_texts(words, Redactor(self.secrets().values()))
        except UsageError as error:  # what cannot be hidden is not told
            return str(error) if isinstance(words, str) else {}

    def _run(self, session: Session) -> Run:
        run = runs.get(session, self.job.run_id)
        if run is None:
            raise NotFoundError("The run is gone. Launch it again.")
        return run


class Evaluating(Training):
    """An evaluation of a run's checkpoint, its base model or an endpoint on the run's eval rows."""

    __slots__ = ()
    module = "benchmax.platform.runner.children.eval_child"

    @property
    def folder(self) -> Path:
        return self.data.run(self.job.run_id) / "evals" / str(self.job.eval_id)

    def prepare(self) -> dict[str, Any]:
        with self.database.read() as session:
            run, row = self._run(session), session.get(Eval, self.job.eval_id)
            if row is None:
                raise NotFoundError("The evaluation is gone. Start it again.")
            endpoint, key = self._endpoint(session, row)
        run_dir = prepare(self.data, run)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {name: str(run_dir / file) for name, file in read_note(run_dir / LAUNCH_FILE)["files"].items()}
        files |= self._own_files(row)
        asked = {"run_dir": str(run_dir), "files": files, "args": run.args, "model": row.model, "endpoint": endpoint}
        write_note(self.folder / LAUNCH_FILE, asked | dict(row.options))
        return {"variables": self.secrets(), "endpoint_key": key}

    def _own_files(self, row: Eval) -> dict[str, str]:
        """Files in place of the run's."""
        return {}

    def reader(self) -> Ingest:
        run_dir, secrets = self.data.run(self.job.run_id), self.secrets().values()
        return EvalIngest(self.database, self.job.run_id, run_dir, secrets, eval_id=str(self.job.eval_id))

    def cancelled(self, session: Session) -> bool:
        return runs.get(session, self.job.run_id) is None

    def tell(self, phase: str, working: bool) -> None:
        with self.database.write() as session:
            total = read_note(self.folder / PLAN).get("total")
            status = "active" if working else None
            evals.set_progress(session, str(self.job.eval_id), status=status, reason=phase, total=total)

    def mark(self, session: Session, status: str, reason: str) -> None:
        summary = self.told(read_note(self.folder / REPORT)) if status == "complete" else None
        evals.set_progress(session, str(self.job.eval_id), status=status, reason=self.told(reason), summary=summary)

    def _endpoint(self, session: Session, row: Eval) -> tuple[Mapping[str, str] | None, str]:
        """Address and model of the endpoint to evaluate, if it is one, and its key."""
        kind, _, name = row.model.partition(":")
        if kind != "endpoint":
            return None, ""
        endpoint = session.get(Endpoint, name)
        if endpoint is None:
            raise NotFoundError("The endpoint to evaluate was removed. Choose another.")
        secret = session.get(Secret, endpoint.secret_id) if endpoint.secret_id else None
        key = self.vault.reveal(secret) if secret else ""
        users.refuse_own_key(session, endpoint.base_url, key)
        return {"base_url": endpoint.base_url, "model": endpoint.model}, key


class Rescoring(Evaluating):
    """A run's latest evaluation, scored again by the run's environment or by another."""

    __slots__ = ()
    module = "benchmax.platform.runner.children.rescore_child"

    def _own_files(self, row: Eval) -> dict[str, str]:
        store, files = BlobStore(self.data.blobs), {}
        for name, sha256 in (row.options.get("environment") or {}).items():
            target = self.folder / FILES[name]
            place(store.path(sha256), target)
            files[name] = str(target)
        return files
