"""Leases on jobs, and the slots of this machine.

A lease ends by the wall clock, which all processes share and anyone may set. So a holder on this machine is looked up
by pid and start time; only for one on another machine the clock decides, with a wide margin.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable, Sequence

from benchmax.config import setting
from benchmax.errors import ConfigError
from benchmax.platform.runner.processes import process_ids
from benchmax.platform.store.database import Database
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.queue.jobs import Holder
from benchmax.platform.store.tables import Job
from benchmax.platform.wire.launch_args import gpu_names

MARGIN_SECONDS = 60.0
"""How long after its end a lease of another machine is left alone."""


def this_process() -> Holder:
    """This process as a holder; no other process ever has the same."""
    pid = os.getpid()
    return Holder(f"{socket.gethostname()[:50]}/{secrets.token_hex(8)}", pid, process_ids.started(pid))


def machine_slots() -> list[str]:
    """One slot for each GPU; without one, one run at a time on CPU (`BENCHMAX_CPU_RUNS` for more)."""
    if gpus := gpu_names():
        return [f"cuda:{name}" for name in gpus]
    wanted = setting("CPU_RUNS", "1")
    if not wanted.isdecimal() or int(wanted) < 1:
        raise ConfigError(f"BENCHMAX_CPU_RUNS is {wanted!r}. Give a number of at least 1.")
    return [f"cpu:{index}" for index in range(int(wanted))]


class Slots:
    """Places for runs. A run holds as many as its job asks for."""

    def __init__(self, names: Sequence[str]) -> None:
        self._all = list(names)
        self._free = list(names)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def names(self) -> list[str]:
        """The free slots."""
        return list(self._free)

    def take(self, count: int, wanted: Iterable[str] = ()) -> list[str]:
        """That many slots, those `wanted` first. An adopted run may want more than are free: it gets what there is."""
        chosen = [name for name in dict.fromkeys(wanted) if name in self._free]
        chosen += [name for name in self._free if name not in chosen]
        taken = chosen[:count]
        self._free = [name for name in self._free if name not in taken]
        return taken

    def give(self, names: Iterable[str]) -> None:
        returned = set(names)
        self._free = [name for name in self._all if name in self._free or name in returned]


class Leases:
    """This supervisor's leases."""

    def __init__(self, database: Database, holder: Holder | None = None) -> None:
        self.database = database
        self.holder = holder or this_process()

    def take(self, slots: int, fewest: int = 0) -> Job | None:
        """The next job that fits: highest priority, then oldest. Jobs that need no slot fit unless `fewest` is 1."""
        with self.database.read() as db:
            if not jobs.anything_waits(db, slots, fewest):
                return None
        with self.database.write() as db:
            return jobs.lease(db, self.holder, slots=slots, fewest=fewest)

    def renew(self, job_ids: Iterable[int]) -> list[int]:
        """Renew leases; returns those that were lost."""
        with self.database.write() as db:
            return [job_id for job_id in job_ids if not jobs.heartbeat(db, job_id, self.holder)]

    def take_abandoned(self) -> list[Job]:
        """Take over the jobs of supervisors that are dead, or silent for too long."""
        with self.database.read() as db:
            abandoned = [job for job in jobs.leased(db) if self._is_abandoned(job)]
        taken = []
        for job in abandoned:
            with self.database.write() as db:
                if jobs.take_over(db, job.id, job.holder, self.holder):
                    taken.append(job)
        return taken

    def _is_abandoned(self, job: Job) -> bool:
        if job.holder is None or job.holder == self.holder.id:
            return False
        host, _, _ = self.holder.id.rpartition("/")
        if job.holder.startswith(f"{host}/"):
            return not process_ids.alive(job.holder_pid, job.holder_started)
        return (job.lease_until or 0.0) + MARGIN_SECONDS < time.time()
