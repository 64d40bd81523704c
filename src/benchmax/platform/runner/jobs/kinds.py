"""The kinds of job. A new kind is a class of `LeasedJob` and a line here."""

from __future__ import annotations

from benchmax.platform.runner.jobs.eval_jobs import EvalJob, RescoreJob
from benchmax.platform.runner.jobs.job import LeasedJob
from benchmax.platform.runner.jobs.one_off_jobs import DoctorJob, ExportJob
from benchmax.platform.runner.jobs.train_job import TrainJob

JOBS: tuple[type[LeasedJob], ...] = (TrainJob, EvalJob, RescoreJob, DoctorJob, ExportJob)
KINDS: dict[str, type[LeasedJob]] = {each.kind: each for each in JOBS}
