"""The sessions of this machine: started, adopted, ended and swept, beside the jobs and without their slots.

Like a job's child, a session's has a process group, a lifeline and a log of its own, and is adopted by the next runner.
Unlike a job, it is never tried again: whoever talked to it opens another.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from benchmax.errors import BenchmaxError, NotFoundError, UsageError
from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children.child_files import CHILD_FILE, LAUNCH_FILE, PROCESS_FILE, read_note, write_note
from benchmax.platform.runner.jobs import outcome
from benchmax.platform.runner.jobs.outcome import COMPLETE
from benchmax.platform.runner.jobs.preparation import prepare
from benchmax.platform.runner.jobs.sandboxing import sandbox_word
from benchmax.platform.runner.processes.parent_watch import Policy
from benchmax.platform.runner.processes.process_groups import RunProcess
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import live_sessions as sessions
from benchmax.platform.store.queue.live_sessions import SessionFolder
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import Run

logger = logging.getLogger(__name__)

MODULE = "benchmax.platform.runner.live.session_child"
MOST = 4
"""Sessions open at once."""
MOST_MODELS = 2
"""Of models alone. They are counted apart: what is played in the others may ask them, and would wait for ever."""
LEFT_SECONDS = 30.0
"""When another waits, a chat that said nothing for so long is ended; a rollout session as soon as it is idle."""
SETUP_SECONDS = 1_200.0
GRACE_SECONDS = 3.0
KEPT_SECONDS = 600.0
"""How long an ended session can still be asked why."""


@dataclass(slots=True)
class Open:
    """A session with a process."""

    folder: SessionFolder
    process: RunProcess
    why: str = ""
    began: float = field(default_factory=time.monotonic)


class Sessions:
    """All sessions of one data directory."""

    def __init__(
        self,
        database: Database,
        data: DataDir,
        vault: Vault,
        *,
        policy: Policy = "adopt",
        start: Callable[..., RunProcess] = RunProcess.start,
        device: Callable[[], str] = lambda: "",
    ) -> None:
        self.open: dict[str, Open] = {}
        self._database = database
        self._data = data
        self._vault = vault
        self._policy: Policy = policy
        self._start = start
        self._device = device
        """The GPU a session may use now; empty for none."""

    def tick(self, stopping: bool) -> None:
        """Everything that can be done now; a session that cannot be looked after never keeps the others waiting."""
        for each in list(self.open.values()):
            if stopping:
                self._end(each, "The platform was stopped.")
            with _logged(each.folder):
                self._tend(each)
        for folder in sessions.every(self._data):
            if folder.id not in self.open and not (folder.path / "ended.json").exists():
                with _logged(folder):
                    self._look_at(folder, stopping)

    def _look_at(self, folder: SessionFolder, stopping: bool) -> None:
        """A session nobody looks after yet."""
        if (folder.path / PROCESS_FILE).exists():
            self._take_over(folder)
        elif folder.status == "ended" or stopping:
            self._close(folder, folder.note("end").get("reason") or "The platform was stopped.")
        elif len(self._rivals(folder)) < _most(folder):
            self._begin(folder)
        else:
            self._make_room(folder)

    def look_around(self) -> None:
        """Every two seconds: who belongs to whom, runs that are gone, folders nobody needs."""
        for each in self.open.values():
            self._note_family(each)
            if (run_id := each.folder.asked.get("run_id")) and self._is_gone(run_id):
                self._end(each, "Its run was deleted.")
        sessions.sweep(self._data, time.time() - KEPT_SECONDS)

    # Starting

    def _begin(self, folder: SessionFolder) -> None:
        process: RunProcess | None = None
        try:
            word = self._prepare(folder)
            variables = {"CUDA_VISIBLE_DEVICES": self._device()}
            process = self._start(folder.path, module=MODULE, policy=self._policy, variables=variables)
            write_note(folder.path / PROCESS_FILE, {"pid": process.pid, "started": process.started})
        except Exception as error:
            if process is not None:
                process.let_go()  # without a word it never begins
            if isinstance(error, SQLAlchemyError):
                raise  # it is tried again
            self._close(folder, str(error) if isinstance(error, BenchmaxError) else f"It could not begin: {error!r}")
            return
        self.open[folder.id] = Open(folder, process)
        process.begin(word)
        logger.info("%s is process %d", folder.id, process.pid)

    def _prepare(self, folder: SessionFolder) -> dict[str, Any]:
        """Write down what the child is to do; gives what only it may know."""
        asked = folder.asked
        launch = dict(asked)
        if asked.get("run_id"):
            with self._database.read() as session:
                run = _run(session, asked["run_id"])
            run_dir = prepare(self._data, run)
            files: Mapping[str, str] = read_note(run_dir / LAUNCH_FILE)["files"]
            launch["files"] = {name: str(run_dir / file) for name, file in files.items()}
            launch |= {"run_dir": str(run_dir), "args": run.args}
        else:
            launch["files"] = {name: str(folder.path / "inputs" / file) for name, file in asked["files"].items()}
        write_note(folder.path / LAUNCH_FILE, launch)
        return {"variables": self._secrets(folder), **sandbox_word(self._database, self._data)}

    def _secrets(self, folder: SessionFolder) -> dict[str, str]:
        with self._database.read() as session:
            return dict(self._vault.for_run(session, folder.asked["owner_id"], folder.asked.get("run_id") or ""))

    def _make_room(self, folder: SessionFolder) -> None:
        """End the session that has been idle longest, if one may be; else say what is waited for."""
        idle, rivals = [], self._rivals(folder)
        for each in rivals:
            activity = each.folder.note("activity")
            alone = time.time() - activity.get("since", time.time())
            least = 0.0 if each.folder.asked.get("kind") == "rollout" else LEFT_SECONDS
            if not each.why and activity and not activity.get("busy") and alone >= least:
                idle.append((alone, each.folder.id))
        if idle and not any(each.why for each in rivals):
            self._end(self.open[max(idle)[1]], "It was idle, and another needed its place. Open it again.")
        words = f"waiting for a place: {_most(folder)} sessions are open"
        if folder.note("child").get("phase") != words:
            write_note(folder.path / CHILD_FILE, {"phase": words})

    def _rivals(self, folder: SessionFolder) -> list[Open]:
        """The open sessions that are counted with this one."""
        return [each for each in self.open.values() if _is_model(each.folder) == _is_model(folder)]

    def _take_over(self, folder: SessionFolder) -> None:
        """The session of a runner that died: adopt its child, or see that nothing is left of it."""
        note = read_note(folder.path / PROCESS_FILE)
        pid, started = note.get("pid") or 0, note.get("started") or 0.0
        process = RunProcess.adopt(folder.path, pid, started)
        lost = process is None
        process = process or RunProcess.found(folder.path, pid, started)
        process.remember(note.get("family") or ())
        taken = self.open[folder.id] = Open(folder, process)
        logger.info("%s: %s process %s", folder.id, "found no" if lost else "adopted", pid)
        if lost:
            taken.why = "Its runner and its process were lost. Open it again."
            if process.poll():
                process.ask_to_end(GRACE_SECONDS)

    # Watching and ending

    def _tend(self, each: Open) -> None:
        if (each.folder.path / "end.json").exists():
            self._end(each, each.folder.note("end").get("reason") or "It was ended.")
        if each.process.poll():
            slow = each.folder.status == "starting" and time.monotonic() - each.began > SETUP_SECONDS
            if slow:
                self._end(each, "It was not ready in time.")
            if each.process.overdue:
                each.process.kill()
            return
        if each.process.remains():
            each.process.kill()
            return
        self._close(each.folder, self._verdict(each))
        del self.open[each.folder.id]

    def _end(self, each: Open, why: str) -> None:
        if not each.why:
            each.why = why
            each.process.ask_to_end(GRACE_SECONDS)

    def _verdict(self, each: Open) -> str:
        if each.why:
            return each.why
        try:
            hide = Redactor(self._secrets(each.folder).values())
        except UsageError as error:  # what cannot be hidden is not told
            return str(error)
        ended = outcome.read_exit(each.folder.path, each.process.pid, each.process.code)
        if ended.code == COMPLETE or ended.reason:
            return hide(ended.reason) or "It ended."
        tail = hide(outcome.log_tail(each.folder.path))
        return f"Its process {outcome.how(ended.code)}. {tail}".strip()

    def _close(self, folder: SessionFolder, reason: str) -> None:
        """Write why it ended; its log stays for a while, the rest goes."""
        logger.info("%s ended: %s", folder.id, reason)
        folder.write("ended", {"reason": reason, "time": time.time()})
        for name in ("inputs", "model"):
            shutil.rmtree(folder.path / name, ignore_errors=True)
        (folder.path / sessions.SOCKET).unlink(missing_ok=True)

    def _note_family(self, each: Open) -> None:
        before = each.process.family
        each.process.look()
        if each.process.family != before:
            note = read_note(each.folder.path / PROCESS_FILE) | {"family": each.process.family}
            write_note(each.folder.path / PROCESS_FILE, note)

    def _is_gone(self, run_id: str) -> bool:
        with self._database.read() as session:
            return runs.get(session, run_id) is None


@contextmanager
def _logged(folder: SessionFolder) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        logger.warning("%s cannot be looked after now: %s", folder.id, error)
    except Exception:
        logger.exception("%s cannot be looked after now", folder.id)


def _is_model(folder: SessionFolder) -> bool:
    return folder.asked.get("kind") == "model"


def _most(folder: SessionFolder) -> int:
    return MOST_MODELS if _is_model(folder) else MOST


def _run(session: Session, run_id: str) -> Run:
    run = runs.get(session, run_id)
    if run is None:
        raise NotFoundError("The run is gone. `benchmax runs list` shows yours.")
    return run
