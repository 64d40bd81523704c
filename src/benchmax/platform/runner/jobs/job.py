"""What every job of the queue can do. A kind of job is a class; the supervisor asks none which kind it is.

row of the queue ── prepare ──▶ child (`module`) ── is_working, report_phase ──▶ finish
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from sqlalchemy.orm import Session

from benchmax.errors import NotFoundError, UsageError
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.platform.store import tables
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import runs
from benchmax.platform.wire.values import RunStatus

Reader: TypeAlias = Callable[[], bool]
"""Reads new records of a child for a moment; returns whether all were read."""


def read_nothing() -> bool:
    """For a job without records, or one whose records cannot be redacted and so are not shown."""
    return True


@dataclass(slots=True)
class LeasedJob(ABC):
    """A leased job."""

    database: Database
    data: DataDir
    vault: Vault
    row: tables.Job

    kind: ClassVar[str]
    module: ClassVar[str]
    """The program of the child."""
    is_measured: ClassVar[bool] = False
    """Whether its use of the machine is recorded."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where the child works and leaves its files."""

    @abstractmethod
    def prepare(self) -> dict[str, Any]:
        """Make the folder ready; returns the message for the child, with what only it may know."""

    @abstractmethod
    def is_cancelled(self, db: Session) -> bool:
        """Whether the child is to be ended, or not to be started."""

    @abstractmethod
    def report_phase(self, phase: str, working: bool) -> None:
        """Store what the child says it does."""

    @abstractmethod
    def finish(self, db: Session, status: RunStatus, reason: str) -> None:
        """Store how it ended; `pending` is another attempt."""

    def is_working(self, pid: int) -> bool:
        """Whether the child of that pid is past its preparations, and writes at shorter intervals."""
        return False

    def reader(self) -> Reader:
        """What reads the child's records into the database; by default it has none."""
        return read_nothing

    def secrets(self) -> dict[str, str]:
        """The environment variables of the child; their values are removed from its records."""
        with self.database.read() as db:
            run = db.get(tables.Run, self.row.run_id)
            return {} if run is None else dict(self.vault.for_run(db, run.owner_id, run.id))

    def redacted(self, value: Any) -> Any:
        """A text or a JSON value for all who may see the run, without its secrets."""
        try:
            return hide_texts(value, Redactor(self.secrets().values()))
        except UsageError as error:  # without the secrets nothing can be redacted, so nothing is shown
            return str(error) if isinstance(value, str) else {}

    def run(self, db: Session) -> tables.Run:
        run = runs.get(db, self.row.run_id)
        if run is None:
            raise NotFoundError("The run is gone. Launch it again.")
        return run

    def __str__(self) -> str:
        return self.row.one_off_id or self.row.eval_id or self.row.run_id
