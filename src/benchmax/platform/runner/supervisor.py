"""The loop: lease, start, watch, read, finish. One thread, no waiting; whatever takes time is a state to come back to.

queued ── lease ──▶ started ── ends ──▶ drained ── finish ──▶ run complete | failed | stalled | cancelled
   ▲                                        │
   └──────── crash, hang, platform stopped ─┘   (from the last checkpoint; a crash counts, progress resets the count)
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from benchmax.errors import BenchmaxError, UsageError
from benchmax.platform.runner.children.child_files import CHILD_FILE, EXIT_FILE, PROCESS_FILE, read_note, write_note
from benchmax.platform.runner.ingest import Ingest, NothingToRead
from benchmax.platform.runner.jobs import outcome
from benchmax.platform.runner.jobs.job import Training
from benchmax.platform.runner.jobs.kinds import work_of
from benchmax.platform.runner.jobs.leases import Leases, Slots, machine_slots
from benchmax.platform.runner.jobs.outcome import Verdict, Why
from benchmax.platform.runner.jobs.sandboxing import sandbox_word
from benchmax.platform.runner.live.live_sessions import Sessions
from benchmax.platform.runner.processes.machine_usage import Gauge
from benchmax.platform.runner.processes.parent_watch import Policy
from benchmax.platform.runner.processes.process_groups import RunProcess
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.queue import waiting as queue
from benchmax.platform.store.queue.jobs import HEARTBEAT_SECONDS
from benchmax.platform.store.runs import evals, runs
from benchmax.platform.store.tables import Job

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
STALL_SECONDS = 180.0
"""A training process that writes nothing, not even a heartbeat, for so long is hung."""
SETUP_SECONDS = 1_200.0
"""The same before training: packages are installed, a model is fetched."""
SAVE_SECONDS = 18.0
"""For a child to save when the platform stops; less than the keeper waits."""
DRAIN_SECONDS = 30.0
"""For reading what a child left, if reading fails; then the run ends without it and `reindex` can add it."""
LONGEST_PAUSE = 20.0
"""Between two attempts."""

MOST_SMALL = 4
"""Jobs at once that need no slot: examinations, exports, new scores, evaluations of endpoints."""

BEATS = ("status.json", CHILD_FILE, "metrics.jsonl", "rollouts.jsonl")
"""Files that change while a child works."""


@dataclass(slots=True)
class Watched:
    """A job in this supervisor's hands."""

    work: Training
    process: RunProcess
    slots: list[str]
    ingest: Ingest
    began_at: int
    """Checkpoint it began with, -1 for none."""
    why: Why = ""
    refused: str = ""
    """Why it cannot be read; then its child is ended and it fails."""
    ended: float | None = None
    beat: float = field(default_factory=time.monotonic)
    beat_of: tuple[int, ...] = ()
    gauge: Gauge = field(default_factory=Gauge)

    @property
    def job(self) -> Job:
        return self.work.job

    @property
    def run_dir(self) -> Path:
        return self.work.folder

    @property
    def works(self) -> bool:
        """Whether the child is past its preparations."""
        status, phase = read_note(self.run_dir / "status.json"), read_note(self.run_dir / CHILD_FILE)
        return status.get("pid") == self.process.pid or (
            self.job.kind in ("eval", "rescore") and phase.get("phase") == "evaluating"
        )


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
        self.sessions = Sessions(database, data, self._vault, policy=policy, start=start, device=self._idle_gpu)
        self._renewed = -HEARTBEAT_SECONDS

    def run(self) -> None:
        """Work until told to stop and every child has ended."""
        while not (self.stopping and not self.watched and not self.sessions.open):
            self.tick()
            self._beat()
            time.sleep(TICK_SECONDS)

    def _beat(self) -> None:
        """Show the keeper that the loop turns."""
        try:
            self.data.runner_beat.touch(mode=0o600)
        except OSError as error:
            logger.warning("no heartbeat: %s", error)

    def stop(self) -> None:
        """End all children so that they can go on later, then end."""
        self.stopping = True

    def tick(self) -> None:
        """Everything that can be done now. A database that cannot be reached is tried again next time."""
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
            try:
                self._tend(watched)
            except (SQLAlchemyError, OSError) as error:
                logger.warning("%s cannot be looked after now: %s", watched.job.run_id, error)
            except Exception:  # whatever is in one run's directory, the others go on
                logger.exception("%s cannot be looked after now", watched.job.run_id)

    def _idle_gpu(self) -> str:
        """A GPU no run uses, for a session; without one it computes on the CPU and leaves the others' memory alone."""
        free = [name.removeprefix("cuda:") for name in self.slots.names if name.startswith("cuda:")]
        return free[-1] if free else ""

    # Every two seconds

    def _look_around(self) -> None:
        if self.watched:
            for job_id in self.leases.renew(self.watched):
                self._drop(self.watched[job_id])
            for watched in self.watched.values():
                try:
                    self._note_family(watched)
                except OSError as error:  # a full disk, say: cancelling, which frees it, must go on
                    logger.warning("%s: its processes cannot be noted: %s", watched.job.run_id, error)
        for job in [] if self.stopping else self.leases.take_abandoned():
            self._take_over(job)
        with self.database.read() as session:
            forgotten = [each for each in jobs.leased(session, self.leases.holder.id) if each.id not in self.watched]
            cancelled = [each for each in self.watched.values() if each.work.cancelled(session)]
            dropped = queue.to_drop(session)
            lost = queue.without_job(session)
            deleted = queue.deleted_runs(session)
            waiting = queue.waiting_runs(session)
        for watched in cancelled:
            self._end(watched, "cancel")
        self._give_back(forgotten)
        self._drop_waiting(dropped)
        self._fail_lost(lost)
        self._remove(deleted)
        self._tell_waiting(waiting)

    def _note_family(self, watched: Watched) -> None:
        """Write down who belongs to a run: if runner and child die together, the next runner ends the rest."""
        before = watched.process.family
        if watched.ended is None:
            watched.process.look()
        if watched.process.family != before:
            note = read_note(watched.run_dir / PROCESS_FILE) | {"family": watched.process.family}
            write_note(watched.run_dir / PROCESS_FILE, note)
        if watched.ended is None and watched.job.kind == "train":
            watched.gauge.write(watched.run_dir, watched.process.family, watched.slots)

    def _give_back(self, forgotten: Sequence[Job]) -> None:
        """Jobs that were leased and, for want of a disk or a database, never begun."""
        for job in forgotten:
            with self.database.write() as session:
                queue.give_back(session, job.id, self.leases.holder, attempts=job.attempts, delay=HEARTBEAT_SECONDS)

    def _drop_waiting(self, dropped: Sequence[tuple[int, str, str | None, str]]) -> None:
        """Runs that were cancelled before they began."""
        for _, run_id, eval_id, kind in dropped:
            with self.database.write() as session:
                jobs.drop_queued(session, run_id, kind)
                if kind == "train":
                    runs.set_status(session, run_id, "cancelled", "The run was stopped before it began.")
                elif eval_id:
                    evals.set_progress(session, eval_id, status="cancelled", reason="The run was stopped.")

    def _fail_lost(self, lost: Sequence[str]) -> None:
        for run_id in lost:
            with self.database.write() as session:
                runs.set_status(session, run_id, "failed", "Nothing was left that would run it. Launch it again.")

    def _remove(self, deleted: Sequence[str]) -> None:
        for run_id in deleted:
            shutil.rmtree(self.data.run(run_id), ignore_errors=True)
            with self.database.write() as session:
                runs.remove(session, run_id)

    def _tell_waiting(self, waiting: Sequence[tuple[str, str]]) -> None:
        """Say how many come before each run that waits."""
        for place, (run_id, activity) in enumerate(waiting):
            words = "waiting for a free slot" + (f", {place} before it" if place else "")
            if words != activity:
                with self.database.write() as session:
                    runs.set_progress(session, run_id, activity=words)

    # Starting

    def _start_next(self) -> bool:
        small = sum(watched.job.slots == 0 for watched in self.watched.values())
        job = self.leases.take(self.slots.free, fewest=int(small >= MOST_SMALL))
        if job is None:
            return False
        work = work_of(self.database, self.data, self._vault, job)
        try:
            with self.database.read() as session:
                cancelled = work.cancelled(session)
            if cancelled:
                self._finish_job(work, Verdict("cancelled", "It was stopped before it began."))
            else:
                self._begin(work, {**work.prepare(), **sandbox_word(self.database, self.data)})
        except BenchmaxError as error:
            self._finish_job(work, Verdict("failed", str(error)))
        except OSError as error:
            self._finish_job(work, Verdict("failed", f"It could not be started: {error}. Free what is missing."))
        return True

    def _begin(self, work: Training, word: Mapping[str, Any]) -> None:
        job, folder = work.job, work.folder
        slots = self.slots.take(job.slots)
        process: RunProcess | None = None
        try:
            (folder / EXIT_FILE).unlink(missing_ok=True)
            began_at = latest_checkpoint(folder)
            process = self._start_child(folder, module=work.module, policy=self.policy, variables=_devices(slots))
            note = {"pid": process.pid, "started": process.started, "slots": slots, "began_at": began_at}
            write_note(folder / PROCESS_FILE, note)
            with self.database.write() as session:
                mine = jobs.set_child(session, job.id, self.leases.holder, process.pid, process.started)
        except BaseException:
            self.slots.give(slots)
            if process is not None:
                process.let_go()  # without a word it never begins
            raise
        watched = self.watched[job.id] = Watched(work, process, slots, work.reader(), began_at)
        if mine:
            process.begin(word)
            logger.info("%s: attempt %d is process %d", job.run_id, job.attempts, process.pid)
        else:
            self._drop(watched)

    def _take_over(self, job: Job) -> None:
        """Go on with the job of a dead supervisor: adopt its child, or see that it is gone before another starts."""
        work = work_of(self.database, self.data, self._vault, job)
        process = RunProcess.adopt(work.folder, job.child_pid, job.child_started)
        lost = process is None
        process = process or RunProcess.found(work.folder, job.child_pid or 0, job.child_started or 0.0)
        note = read_note(work.folder / PROCESS_FILE)
        process.remember(note.get("family") or ())
        slots = self.slots.take(job.slots, note.get("slots") or ())
        reader, refused = _reader(work)
        self.watched[job.id] = Watched(
            work, process, slots, reader, note.get("began_at", -1), why="lost" if lost else "", refused=refused
        )
        logger.info("%s: %s process %s", job.run_id, "found no" if lost else "adopted", job.child_pid)
        if (lost or refused) and process.poll():
            process.ask_to_end()

    # Watching

    def _tend(self, watched: Watched) -> None:
        if watched.ended is None:
            if self.stopping:
                self._end(watched, "stop")
            if watched.process.poll():
                self._watch(watched)
                watched.ingest.step()
                return
            watched.ended = time.monotonic()
        if watched.process.remains():
            watched.process.kill()
            return
        if self._drained(watched):
            self._conclude(watched)

    def _watch(self, watched: Watched) -> None:
        if watched.process.overdue:
            watched.process.kill()
            return
        beat_of = tuple(_modified(watched.run_dir / name) for name in BEATS)
        if beat_of != watched.beat_of:
            watched.beat, watched.beat_of = time.monotonic(), beat_of
            self._tell(watched)
        elif time.monotonic() - watched.beat > (STALL_SECONDS if watched.works else SETUP_SECONDS):
            self._end(watched, "stall")

    def _tell(self, watched: Watched) -> None:
        """Pass on what the child says it does."""
        if not watched.why:
            watched.work.tell(str(read_note(watched.run_dir / CHILD_FILE).get("phase", "")), watched.works)

    def _end(self, watched: Watched, why: Why) -> None:
        """Ask a child to end; the first reason counts, but a cancelled run is never resumed."""
        if watched.ended is None:
            watched.process.ask_to_end(SAVE_SECONDS if why == "stop" else None)
        if not watched.why or why == "cancel":
            watched.why = why

    def _drained(self, watched: Watched) -> bool:
        assert watched.ended is not None
        try:
            return watched.ingest.step()
        except Exception as error:
            if time.monotonic() - watched.ended < DRAIN_SECONDS:
                raise
            logger.error("%s: what is left cannot be read: %s", watched.job.run_id, error)
            return True

    # Finishing

    def _conclude(self, watched: Watched) -> None:
        job, process = watched.job, watched.process
        if watched.works:
            self._tell(watched)  # it may have trained and ended between two looks
        ended = outcome.read_exit(watched.run_dir, process.pid, process.code)
        moved = latest_checkpoint(watched.run_dir) > watched.began_at
        attempt = 1 if moved else job.attempts
        verdict = outcome.judge(ended, watched.why, attempt, job.max_attempts, outcome.log_tail(watched.run_dir))
        if watched.refused and verdict.status != "cancelled":
            verdict = Verdict("failed", watched.refused)
        self._finish_job(watched.work, verdict, attempt)
        del self.watched[job.id]
        self.slots.give(watched.slots)
        logger.info("%s: process %d ended: %s %s", job.run_id, process.pid, verdict.status, verdict.reason)

    def _finish_job(self, work: Training, verdict: Verdict, attempt: int | None = None) -> None:
        """The end of the job and of its run, or the job's way back to the queue, in one transaction."""
        job = work.job
        attempts = job.attempts if attempt is None else attempt
        holder = self.leases.holder
        with self.database.write() as session:
            if verdict.status == "pending":
                counted = attempts if verdict.counted else attempts - 1
                pause = min(LONGEST_PAUSE, 0.5 * 2.0**counted) if verdict.counted else 0.0
                mine = queue.give_back(session, job.id, holder, attempts=max(0, counted), delay=pause)
            else:
                mine = jobs.finish(session, job.id, holder)
            if mine:
                work.mark(session, verdict.status, verdict.reason)

    def _drop(self, watched: Watched) -> None:
        """Another supervisor has the job: the child, if it began, is theirs."""
        logger.warning("%s: the lease was lost", watched.job.run_id)
        watched.process.let_go()
        del self.watched[watched.job.id]
        self.slots.give(watched.slots)


def _reader(work: Training) -> tuple[Ingest, str]:
    """What reads the job's records, or one that reads nothing and why: what cannot be hidden must not be shown."""
    try:
        return work.reader(), ""
    except UsageError as error:
        return NothingToRead(work.database, work.job.run_id, work.folder), f"{error} Then start it again."


def latest_checkpoint(run_dir: Path) -> int:
    """The step of the newest checkpoint, -1 for none."""
    try:
        return int((run_dir / "checkpoints" / "latest").read_text("utf-8").strip().removeprefix("step-"))
    except (OSError, ValueError):
        return -1


def _devices(slots: Sequence[str]) -> dict[str, str]:
    gpus = [name.removeprefix("cuda:") for name in slots if name.startswith("cuda:")]
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
