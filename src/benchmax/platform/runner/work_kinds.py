"""Which work each kind of job is."""

from __future__ import annotations

from benchmax.platform.runner.errand_work import Examining, Exporting
from benchmax.platform.runner.work import Evaluating, Rescoring, Training
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import Job
from benchmax.platform.store.vault import Vault

KINDS: dict[str, type[Training]] = {
    "train": Training,
    "eval": Evaluating,
    "rescore": Rescoring,
    "doctor": Examining,
    "export": Exporting,
}


def work_of(database: Database, data: DataDir, vault: Vault, job: Job) -> Training:
    return KINDS[job.kind](database, data, vault, job)
