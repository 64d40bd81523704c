"""Evaluates a run: a model plays its eval rows, or what was played is scored again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from benchmax.errors import NotFoundError
from benchmax.platform.runner.children.child_files import (
    CHILD_FILE,
    EVALUATING,
    LAUNCH_FILE,
    PLAN_FILE,
    REPORT_FILE,
    read_child_file,
    write_child_file,
)
from benchmax.platform.runner.ingest import EvalIngest
from benchmax.platform.runner.jobs.job import LeasedJob, Reader
from benchmax.platform.runner.jobs.preparation import FILES, place, prepare
from benchmax.platform.store.accounts import api_keys
from benchmax.platform.store.runs import evals, runs
from benchmax.platform.store.tables import Endpoint, Eval, Secret
from benchmax.platform.wire.values import RunStatus


class EvalJob(LeasedJob):
    """A checkpoint, the base model or an endpoint plays the run's eval rows."""

    __slots__ = ()
    kind = "eval"
    module = "benchmax.platform.runner.children.eval_child"

    @property
    def eval_id(self) -> str:
        return str(self.row.eval_id)

    @property
    def folder(self) -> Path:
        return self.data.run(self.row.run_id) / "evals" / self.eval_id

    def prepare(self) -> dict[str, Any]:
        with self.database.read() as db:
            run, row = self.run(db), db.get(Eval, self.eval_id)
            if row is None:
                raise NotFoundError("The evaluation is gone. Start it again.")
            endpoint, key = self._endpoint(db, row)
        files = prepare(self.data, run)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files |= self._own_files(row)
        launch = {"run_dir": str(self.data.run(run.id)), "files": files, "args": run.args, "model": row.model}
        write_child_file(self.folder / LAUNCH_FILE, {**launch, "endpoint": endpoint, **row.options})
        return {"variables": self.secrets(), "endpoint_key": key}

    def _own_files(self, row: Eval) -> dict[str, str]:
        """Files in place of the run's."""
        return {}

    def reader(self) -> Reader:
        run_dir, secrets = self.data.run(self.row.run_id), self.secrets().values()
        return EvalIngest(self.database, self.row.run_id, run_dir, secrets, eval_id=self.eval_id).step

    def is_cancelled(self, db: Session) -> bool:
        return runs.get(db, self.row.run_id) is None

    def is_working(self, pid: int) -> bool:
        return read_child_file(self.folder / CHILD_FILE).get("phase") == EVALUATING

    def report_phase(self, phase: str, working: bool) -> None:
        total = read_child_file(self.folder / PLAN_FILE).get("total")
        with self.database.write() as db:
            evals.set_progress(db, self.eval_id, status="active" if working else None, reason=phase, total=total)

    def finish(self, db: Session, status: RunStatus, reason: str) -> None:
        summary = self.redacted(read_child_file(self.folder / REPORT_FILE)) if status == "complete" else None
        evals.set_progress(db, self.eval_id, status=status, reason=self.redacted(reason), summary=summary)

    def _endpoint(self, db: Session, row: Eval) -> tuple[Mapping[str, str] | None, str]:
        """Address and model of the endpoint to evaluate, if it is one, and its key."""
        kind, _, name = row.model.partition(":")
        if kind != "endpoint":
            return None, ""
        endpoint = db.get(Endpoint, name)
        if endpoint is None:
            raise NotFoundError("The endpoint to evaluate was removed. Choose another.")
        secret = db.get(Secret, endpoint.secret_id) if endpoint.secret_id else None
        key = self.vault.reveal(secret) if secret else ""
        api_keys.refuse_own_key(db, endpoint.base_url, key)
        return {"base_url": endpoint.base_url, "model": endpoint.model}, key


class RescoreJob(EvalJob):
    """A run's latest evaluation, scored again by the run's environment or by another."""

    __slots__ = ()
    kind = "rescore"
    module = "benchmax.platform.runner.children.rescore_child"

    def _own_files(self, row: Eval) -> dict[str, str]:
        given = row.options.get("environment") or {}
        return {name: place(self.data, sha256, self.folder / FILES[name]) for name, sha256 in given.items()}
