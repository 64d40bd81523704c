"""Which work each kind of job is."""

from __future__ import annotations

from benchmax.platform.runner.jobs.job import Evaluating, Rescoring, Training
from benchmax.platform.runner.jobs.one_off_jobs import Examining, Exporting
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import Job

KINDS: dict[str, type[Training]] = {
    "train": Training,
    "eval": Evaluating,
    "rescore": Rescoring,
    "doctor": Examining,
    "export": Exporting,
}


def work_of(database: Database, data: DataDir, vault: Vault, job: Job) -> Training:
    return KINDS[job.kind](database, data, vault, job)
