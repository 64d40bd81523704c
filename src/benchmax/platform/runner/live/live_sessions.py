"""The live sessions of this machine: started, adopted, ended and swept, beside the jobs and without their slots.

Like a job's child, a session's has a process group, a pipe to the runner and a log of its own, and the next runner
adopts it. Unlike a job, it is never tried again: its client opens another.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from benchmax.errors import BenchmaxError, NotFoundError, UsageError
from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children.child_files import (
    CHILD_FILE,
    LAUNCH_FILE,
    PROCESS_FILE,
    read_child_file,
    write_child_file,
)
from benchmax.platform.runner.jobs import outcome
from benchmax.platform.runner.jobs.outcome import COMPLETE
from benchmax.platform.runner.jobs.preparation import machine_message, prepare
from benchmax.platform.runner.jobs.queue_upkeep import logged_trouble
from benchmax.platform.runner.processes.parent_watch import Policy
from benchmax.platform.runner.processes.run_process import SETUP_SECONDS, RunProcess
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import live_sessions
from benchmax.platform.store.queue.live_sessions import SessionFolder
from benchmax.platform.store.runs import runs

logger = logging.getLogger(__name__)

MODULE = "benchmax.platform.runner.live.session_child"
MOST_OPEN = 4
"""Sessions open at once."""
MOST_MODELS = 2
"""Of models alone. They are counted apart: rollouts in the others may call them, and would wait forever."""
IDLE_SECONDS = 30.0
"""When another session waits, a chat that has been idle this long is ended; a rollout session as soon as it is idle."""
GRACE_SECONDS = 3.0
KEPT_SECONDS = 600.0
"""How long the reason of an ended session is kept."""


@dataclass(slots=True)
class LiveSession:
    """A session with a process."""

    folder: SessionFolder
    process: RunProcess
    why: str = ""
    began: float = field(default_factory=time.monotonic)


@dataclass
class LiveSessionSupervisor:
    """All live sessions of one data directory."""

    database: Database
    data: DataDir
    vault: Vault
    policy: Policy
    start: Callable[..., RunProcess]
    device: Callable[[], str]
    """The GPU a session may use now; empty for none."""
    open: dict[str, LiveSession] = field(default_factory=dict)

    def tick(self, stopping: bool) -> None:
        """Do everything that can be done now; a session that fails never keeps the others waiting."""
        for each in list(self.open.values()):
            if stopping:
                self._end(each, "The platform was stopped.")
            with logged_trouble(each.folder.id):
                self._advance(each)
        for folder in live_sessions.every(self.data):
            if folder.id not in self.open and not (folder.path / "ended.json").exists():
                with logged_trouble(folder.id):
                    self._open(folder, stopping)

    def _open(self, folder: SessionFolder, stopping: bool) -> None:
        """Begin, adopt or close a session that is not watched yet."""
        if (folder.path / PROCESS_FILE).exists():
            self._take_over(folder)
        elif folder.status == "ended" or stopping:
            self._close(folder, folder.note("end").get("reason") or "The platform was stopped.")
        elif len(self._rivals(folder)) < _most(folder):
            self._begin(folder)
        else:
            self._make_room(folder)

    def look_around(self) -> None:
        """Every two seconds: record families, end sessions of deleted runs, remove old folders."""
        for each in self.open.values():
            with logged_trouble(each.folder.id):
                if (run_id := each.folder.asked.get("run_id")) and self._is_gone(run_id):
                    self._end(each, "Its run was deleted.")
                each.process.record_family()
        live_sessions.sweep(self.data, time.time() - KEPT_SECONDS)

    # Starting

    def _begin(self, folder: SessionFolder) -> None:
        process: RunProcess | None = None
        try:
            message = self._prepare(folder)
            variables = {"CUDA_VISIBLE_DEVICES": self.device()}
            process = self.start(folder.path, module=MODULE, policy=self.policy, variables=variables)
            write_child_file(folder.path / PROCESS_FILE, {"pid": process.pid, "started": process.started})
        except Exception as error:
            if process is not None:
                process.release()  # without a message it never begins
            if isinstance(error, SQLAlchemyError):
                raise  # the next tick tries again
            self._close(folder, str(error) if isinstance(error, BenchmaxError) else f"It could not begin: {error!r}")
            return
        self.open[folder.id] = LiveSession(folder, process)
        process.begin(message)
        logger.info("%s is process %d", folder.id, process.pid)

    def _prepare(self, folder: SessionFolder) -> dict[str, Any]:
        """Write launch.json; returns the message for the child, with what only it may know."""
        asked = folder.asked
        if asked.get("run_id"):
            with self.database.read() as db:
                run = runs.get(db, asked["run_id"])
            if run is None:
                raise NotFoundError("The run is gone. `benchmax runs list` shows yours.")
            files = prepare(self.data, run)
            about = {"files": files, "run_dir": str(self.data.run(run.id)), "args": run.args}
        else:
            files = {name: str(folder.path / "inputs" / file) for name, file in asked["files"].items()}
            about = {"files": files}
        write_child_file(folder.path / LAUNCH_FILE, {**asked, **about})
        return {"variables": self._secrets(folder), **machine_message(self.database, self.data)}

    def _secrets(self, folder: SessionFolder) -> dict[str, str]:
        with self.database.read() as db:
            return dict(self.vault.for_run(db, folder.asked["owner_id"], folder.asked.get("run_id") or ""))

    def _make_room(self, folder: SessionFolder) -> None:
        """End the session that has been idle longest, if one may be ended; report what this one waits for."""
        idle, rivals = [], self._rivals(folder)
        for each in rivals:
            activity = each.folder.note("activity")
            alone = time.time() - activity.get("since", time.time())
            least = 0.0 if each.folder.asked.get("kind") == "rollout" else IDLE_SECONDS
            if not each.why and activity and not activity.get("busy") and alone >= least:
                idle.append((alone, each.folder.id))
        if idle and not any(each.why for each in rivals):
            self._end(self.open[max(idle)[1]], "It was idle, and another needed its place. Open it again.")
        text = f"waiting for a place: {_most(folder)} sessions are open"
        if folder.note("child").get("phase") != text:
            write_child_file(folder.path / CHILD_FILE, {"phase": text})

    def _rivals(self, folder: SessionFolder) -> list[LiveSession]:
        """The open sessions that count against the same limit."""
        return [each for each in self.open.values() if _is_model(each.folder) == _is_model(folder)]

    def _take_over(self, folder: SessionFolder) -> None:
        """The session of a dead runner: adopt its child, or see that nothing is left of it."""
        about = read_child_file(folder.path / PROCESS_FILE)
        process, adopted = RunProcess.take_over(folder.path, about.get("pid"), about.get("started"))
        taken = self.open[folder.id] = LiveSession(folder, process)
        logger.info("%s: %s process %s", folder.id, "adopted" if adopted else "found no", process.pid)
        if not adopted:
            taken.why = "Its runner and its process were lost. Open it again."
            if process.poll():
                process.ask_to_end(GRACE_SECONDS)

    # Watching and ending

    def _advance(self, each: LiveSession) -> None:
        if (each.folder.path / "end.json").exists():
            self._end(each, each.folder.note("end").get("reason") or "It was ended.")
        if each.process.poll():
            if each.folder.status == "starting" and time.monotonic() - each.began > SETUP_SECONDS:
                self._end(each, "It was not ready in time.")
            if each.process.overdue:
                each.process.kill()
        elif each.process.remains():
            each.process.kill()
        else:
            self._close(each.folder, self._reason(each))
            del self.open[each.folder.id]

    def _end(self, each: LiveSession, why: str) -> None:
        if not each.why:
            each.why = why
            each.process.ask_to_end(GRACE_SECONDS)

    def _reason(self, each: LiveSession) -> str:
        if each.why:
            return each.why
        try:
            hide = Redactor(self._secrets(each.folder).values())
        except UsageError as error:  # without the secrets nothing can be redacted, so nothing is shown
            return str(error)
        ended = outcome.read_exit(each.folder.path, each.process.pid, each.process.code)
        if ended.code == COMPLETE or ended.reason:
            return hide(ended.reason) or "It ended."
        tail = hide(outcome.log_tail(each.folder.path))
        return f"Its process {outcome.how(ended.code)}. {tail}".strip()

    def _close(self, folder: SessionFolder, reason: str) -> None:
        """Write why it ended; its log stays for a while, the rest is removed."""
        logger.info("%s ended: %s", folder.id, reason)
        folder.write("ended", {"reason": reason, "time": time.time()})
        for name in ("inputs", "model"):
            shutil.rmtree(folder.path / name, ignore_errors=True)
        (folder.path / live_sessions.SOCKET).unlink(missing_ok=True)

    def _is_gone(self, run_id: str) -> bool:
        with self.database.read() as db:
            return runs.get(db, run_id) is None


def _is_model(folder: SessionFolder) -> bool:
    return folder.asked.get("kind") == "model"


def _most(folder: SessionFolder) -> int:
    return MOST_MODELS if _is_model(folder) else MOST_OPEN
