"""The loop: lease, start, watch, read, finish. One thread that never blocks: whatever takes time is a state to check.

queued ── lease ──▶ started ── ends ──▶ drained ── finish ──▶ run complete | failed | stalled | cancelled
   ▲                                        │
   └──────── crash, hang, platform stopped ─┘   (from the last checkpoint; a crash counts, progress resets the count)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from benchmax import retries
from benchmax.errors import BenchmaxError, UsageError
from benchmax.files.links import read_plain
from benchmax.files.logs import modified_at
from benchmax.files.temp_dirs import remove_orphaned_dirs
from benchmax.platform.runner.children.child_files import (
    CHILD_FILE,
    EXIT_FILE,
    PROCESS_FILE,
    read_child_file,
    write_child_file,
)
from benchmax.platform.runner.jobs import outcome
from benchmax.platform.runner.jobs.eval_jobs import EvalJob, RescoreJob
from benchmax.platform.runner.jobs.job import LeasedJob, Reader, read_nothing
from benchmax.platform.runner.jobs.leases import Leases, Slots, machine_slots
from benchmax.platform.runner.jobs.one_off_jobs import DoctorJob, ExportJob
from benchmax.platform.runner.jobs.outcome import Verdict, Why
from benchmax.platform.runner.jobs.preparation import machine_message
from benchmax.platform.runner.jobs.queue_upkeep import keep_up, logged_trouble
from benchmax.platform.runner.jobs.train_job import TrainJob
from benchmax.platform.runner.live.live_sessions import LiveSessionSupervisor
from benchmax.platform.runner.processes.machine_usage import UsageRecorder, gpu_ids
from benchmax.platform.runner.processes.parent_watch import Policy
from benchmax.platform.runner.processes.run_process import SETUP_SECONDS, RunProcess
from benchmax.platform.store import tables
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.queue.jobs import HEARTBEAT_SECONDS

logger = logging.getLogger(__name__)

KINDS: dict[str, type[LeasedJob]] = {kind.kind: kind for kind in (TrainJob, EvalJob, RescoreJob, DoctorJob, ExportJob)}
"""The kinds of job. A new kind is a class of `LeasedJob` and its name here."""

TICK_SECONDS = 0.2
STALL_SECONDS = 180.0
"""A training process that writes nothing for this long, not even a heartbeat, is hung."""
SAVE_SECONDS = 18.0
"""For a child to save when the platform stops; less than the daemon waits."""
DRAIN_SECONDS = 30.0
"""For reading what a child left, if reading fails; then the run ends without it and `reindex` can add it."""
LONGEST_PAUSE = 20.0
"""Between two attempts."""
MOST_WITHOUT_SLOT = 4
"""Jobs at once that need no slot: examinations, exports, new scores, evaluations of endpoints."""

HEARTBEAT_FILES = ("status.json", CHILD_FILE, "metrics.jsonl", "rollouts.jsonl")
"""Files that change while a child works."""


@dataclass(slots=True)
class Watched:
    """A job that this supervisor runs."""

    job: LeasedJob
    process: RunProcess
    slots: list[str]
    reader: Reader
    began_at: int
    """The checkpoint it began with, -1 for none."""
    why: Why = ""
    unreadable: str = ""
    """Why its records cannot be read; then its child is ended and it fails."""
    ended: float | None = None
    last_beat: float = field(default_factory=time.monotonic)
    beat_times: tuple[float, ...] = ()
    usage: UsageRecorder = field(default_factory=UsageRecorder)

    @property
    def is_working(self) -> bool:
        """Whether the child is past its preparations."""
        return self.job.is_working(self.process.pid)

    def report_phase(self) -> None:
        """Store what the child says it does."""
        if not self.why:
            phase = read_child_file(self.job.folder / CHILD_FILE).get("phase", "")
            self.job.report_phase(str(phase), self.is_working)

    def record_processes(self) -> None:
        """Write down which processes belong to the job, and what they use."""
        if self.ended is None:
            self.process.record_family()
            if self.job.is_measured:
                self.usage.write(self.job.folder, self.process.family, self.slots)

    def ask_to_end(self, why: Why) -> None:
        """Ask the child to end; the first reason counts, but a cancelled run is never resumed."""
        if self.ended is None:
            self.process.ask_to_end(SAVE_SECONDS if why == "stop" else None)
        if not self.why or why == "cancel":
            self.why = why

    def check(self) -> None:
        """Kill a child that had its time to end; ask one to end that hangs."""
        if self.process.overdue:
            self.process.kill()
            return
        beat_times = tuple(modified_at(self.job.folder / name) for name in HEARTBEAT_FILES)
        if beat_times != self.beat_times:
            self.last_beat, self.beat_times = time.monotonic(), beat_times
            self.report_phase()
        elif time.monotonic() - self.last_beat > (STALL_SECONDS if self.is_working else SETUP_SECONDS):
            self.ask_to_end("stall")

    def is_drained(self) -> bool:
        """Read what the ended child left; returns whether nothing is left, or reading has failed for too long."""
        assert self.ended is not None
        try:
            return self.reader()
        except Exception as error:
            if time.monotonic() - self.ended < DRAIN_SECONDS:
                raise
            logger.error("%s: what is left cannot be read: %s", self.job, error)
            return True


class Supervisor:
    """Runs the jobs of one database on this machine."""

    def __init__(
        self,
        database: Database,
        data: DataDir,
        *,
        slots: Sequence[str] | None = None,
        policy: Policy = "adopt",
        start: Callable[..., RunProcess] = RunProcess.start,
        leases: Leases | None = None,
    ) -> None:
        self.database = database
        self.data = data
        self.slots = Slots(machine_slots() if slots is None else slots)
        self.policy: Policy = policy
        self.leases = leases or Leases(database)
        self.watched: dict[int, Watched] = {}
        self.stopping = False
        self._start_child = start
        self._vault = Vault(data)
        self.sessions = LiveSessionSupervisor(database, data, self._vault, policy, start, self._idle_gpu)
        self._renewed = -HEARTBEAT_SECONDS

    def run(self) -> None:
        """Work until stopped and every child has ended."""
        remove_orphaned_dirs()  # of children that ended while no runner was there
        while not (self.stopping and not self.watched and not self.sessions.open):
            self.tick()
            try:
                self.data.runner_beat.touch(mode=0o600)  # shows the daemon that the loop turns
            except OSError as error:
                logger.warning("no heartbeat: %s", error)
            time.sleep(TICK_SECONDS)

    def stop(self) -> None:
        """End all children so that they can go on later, then end."""
        self.stopping = True

    def tick(self) -> None:
        """Do everything that can be done now. A database that cannot be reached is tried again next time."""
        try:
            if time.monotonic() - self._renewed >= HEARTBEAT_SECONDS:
                self._renewed = time.monotonic()
                self._look_around()
                self.sessions.look_around()
            while not self.stopping and self._start_next():
                pass
        except (SQLAlchemyError, OSError) as error:
            logger.warning("the runner cannot work now: %s", error)
        self.sessions.tick(self.stopping)
        for watched in list(self.watched.values()):
            with logged_trouble(watched.job):
                self._advance(watched)

    def _idle_gpu(self) -> str:
        """A GPU no run uses, for a live session; without one it computes on the CPU and uses no run's memory."""
        return next(reversed(gpu_ids(self.slots.names)), "")

    def _open_job(self, row: tables.Job) -> LeasedJob:
        return KINDS[row.kind](self.database, self.data, self._vault, row)

    # Every two seconds

    def _look_around(self) -> None:
        if self.watched:
            for job_id in self.leases.renew(self.watched):
                self._drop(self.watched[job_id])
            for watched in self.watched.values():
                try:
                    watched.record_processes()
                except OSError as error:  # a full disk, say: cancelling, which frees it, must go on
                    logger.warning("%s: its processes cannot be recorded: %s", watched.job, error)
        for row in [] if self.stopping else self.leases.take_abandoned():
            self._take_over(self._open_job(row))
        with self.database.read() as db:
            cancelled = [each for each in self.watched.values() if each.job.is_cancelled(db)]
        for watched in cancelled:
            watched.ask_to_end("cancel")
        keep_up(self.database, self.data, self.leases, self.watched, self._open_job)

    # Starting

    def _start_next(self) -> bool:
        small = sum(watched.job.row.slots == 0 for watched in self.watched.values())
        row = self.leases.take(self.slots.free, fewest=int(small >= MOST_WITHOUT_SLOT))
        if row is None:
            return False
        job = self._open_job(row)
        try:
            with self.database.read() as db:
                cancelled = job.is_cancelled(db)
            if cancelled:
                self._finish(job, Verdict("cancelled", "It was stopped before it began."))
            else:
                self._begin(job, {**job.prepare(), **machine_message(self.database, self.data)})
        except BenchmaxError as error:
            self._finish(job, Verdict("failed", str(error)))
        except OSError as error:
            self._finish(job, Verdict("failed", f"It could not be started: {error}. Free what is missing."))
        return True

    def _begin(self, job: LeasedJob, message: Mapping[str, Any]) -> None:
        folder, slots = job.folder, self.slots.take(job.row.slots)
        process: RunProcess | None = None
        try:
            (folder / EXIT_FILE).unlink(missing_ok=True)
            began_at, reader = latest_checkpoint(folder), job.reader()
            devices = {"CUDA_VISIBLE_DEVICES": ",".join(gpu_ids(slots))}
            process = self._start_child(folder, module=job.module, policy=self.policy, variables=devices)
            about = {"pid": process.pid, "started": process.started, "slots": slots, "began_at": began_at}
            write_child_file(folder / PROCESS_FILE, about)
            with self.database.write() as db:
                mine = jobs.set_child(db, job.row.id, self.leases.holder, process.pid, process.started)
        except BaseException:
            self.slots.give(slots)
            if process is not None:
                process.release()  # without a message it never begins
            raise
        watched = self.watched[job.row.id] = Watched(job, process, slots, reader, began_at)
        if mine:
            process.begin(message)
            logger.info("%s: attempt %d is process %d", job, job.row.attempts, process.pid)
        else:
            self._drop(watched)

    def _take_over(self, job: LeasedJob) -> None:
        """Continue the job of a dead supervisor: adopt its child, or end it before another starts."""
        row, about = job.row, read_child_file(job.folder / PROCESS_FILE)
        process, adopted = RunProcess.take_over(job.folder, row.child_pid, row.child_started)
        slots = self.slots.take(row.slots, about.get("slots") or ())
        reader, unreadable = read_nothing, ""
        try:
            reader = job.reader()
        except UsageError as error:  # what cannot be redacted must not be shown
            unreadable = f"{error} Then start it again."
        why: Why = "" if adopted else "lost"
        self.watched[row.id] = Watched(job, process, slots, reader, about.get("began_at", -1), why, unreadable)
        logger.info("%s: %s process %s", job, "adopted" if adopted else "found no", row.child_pid)
        if (not adopted or unreadable) and process.poll():
            process.ask_to_end()

    # Watching

    def _advance(self, watched: Watched) -> None:
        if watched.ended is None:
            if self.stopping:
                watched.ask_to_end("stop")
            if watched.process.poll():
                watched.check()
                watched.reader()
                return
            watched.ended = time.monotonic()
        if watched.process.remains():
            watched.process.kill()
        elif watched.is_drained():
            self._conclude(watched)

    # Finishing

    def _conclude(self, watched: Watched) -> None:
        job, process = watched.job, watched.process
        if watched.is_working:
            watched.report_phase()  # it may have trained and ended between two looks
        ended = outcome.read_exit(job.folder, process.pid, process.code)
        moved = latest_checkpoint(job.folder) > watched.began_at
        attempt = 1 if moved else job.row.attempts
        verdict = outcome.judge(ended, watched.why, attempt, job.row.max_attempts, outcome.log_tail(job.folder))
        if watched.unreadable and verdict.status != "cancelled":
            verdict = Verdict("failed", watched.unreadable)
        self._finish(job, verdict, attempt)
        del self.watched[job.row.id]
        self.slots.give(watched.slots)
        logger.info("%s: process %d ended: %s %s", job, process.pid, verdict.status, verdict.reason)

    def _finish(self, job: LeasedJob, verdict: Verdict, attempt: int | None = None) -> None:
        """End the job and its run, or give the job back to the queue, in one transaction."""
        attempts = job.row.attempts if attempt is None else attempt
        holder = self.leases.holder
        with self.database.write() as db:
            if verdict.status == "pending":
                counted = attempts if verdict.counted else attempts - 1
                pause = retries.pause(counted, 1.0, LONGEST_PAUSE) if verdict.counted else 0.0
                mine = jobs.give_back(db, job.row.id, holder, attempts=max(0, counted), delay=pause)
            else:
                mine = jobs.finish(db, job.row.id, holder)
            if mine:
                job.finish(db, verdict.status, verdict.reason)

    def _drop(self, watched: Watched) -> None:
        """Another supervisor has the job: the child, if it began, is theirs."""
        logger.warning("%s: the lease was lost", watched.job)
        watched.process.release()
        del self.watched[watched.job.row.id]
        self.slots.give(watched.slots)


def latest_checkpoint(run_dir: Path) -> int:
    """The step of the newest checkpoint, -1 for none."""
    try:
        return int(read_plain(run_dir, "checkpoints/latest", 1024).decode().strip().removeprefix("step-"))
    except (OSError, ValueError):
        return -1
