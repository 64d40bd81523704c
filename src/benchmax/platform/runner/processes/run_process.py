"""The processes of one run: started, adopted, ended, and checked to be gone.

The group's leader is in a session of its own. Environment processes have sessions of their own below it, so a child's
whole family is looked up while it lives and remembered: when the leader is killed, what it leaves behind is known. What
an environment sent into the background between two looks is recognised by the tags that all of a run's processes have.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmax.envs.remote.process_limits import PASSED_ON
from benchmax.files.logs import open_log
from benchmax.files.temp_dirs import remove_orphaned_dirs
from benchmax.platform.runner.children.child_files import PROCESS_FILE, read_child_file, write_child_file
from benchmax.platform.runner.processes import process_ids, process_tags
from benchmax.platform.runner.processes.parent_watch import Policy, fifo_path
from benchmax.platform.runner.processes.process_ids import Process

GRACE_SECONDS = 10.0
"""From SIGTERM to SIGKILL."""
SETUP_SECONDS = 1_200.0
"""A child that reports nothing for this long while it prepares is hung; it may install packages or fetch a model."""

_PASSED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "GOMP_", "MKL_", "KMP_", "ONEDNN_", "PYTORCH_", "PIP_", "UV_")
_PASSED_NAMES = PASSED_ON | {
    "BENCHMAX_HOME",
    "BENCHMAX_ENV_MEMORY",
    "BENCHMAX_SANDBOX_INSIST",
    "BENCHMAX_SANDBOX_READ",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "PYENV_ROOT",
    "TINKER_BASE_URL",
}
"""Which of the runner's environment variables the processes of a run see, with those that begin so."""


class Member(NamedTuple):
    """A process of a run, to be recognised later."""

    pid: int
    session: int
    started: float


class RunProcess:
    """The process group of one run."""

    def __init__(
        self, run_dir: Path, pid: int, started: float, pipe: int | None, popen: subprocess.Popen[bytes] | None
    ) -> None:
        self.run_dir = run_dir
        self.pid = pid
        self.started = started
        self._pipe = pipe
        """The runner's end. When the runner dies the kernel closes it, and the child knows."""
        self._popen = popen
        self._family: set[Member] = set()
        self._recorded: list[Member] = []
        self.code: int | None = None
        """The exit code, negative for a signal; None for an adopted child, whose parent was another."""
        self._ended = False
        self._deadline: float | None = None

    @classmethod
    def start(
        cls,
        run_dir: Path,
        *,
        policy: Policy = "adopt",
        variables: Mapping[str, str] | None = None,
        module: str = "",
        command: Sequence[str] | None = None,
    ) -> RunProcess:
        """Start a child that waits for `begin`."""
        program = command or (sys.executable, "-P", "-m", module)
        theirs, ours = os.pipe()
        try:
            with open_log(run_dir / "child.log") as output:
                popen = subprocess.Popen(
                    [*program, str(run_dir), "--parent-pipe", str(theirs), "--policy", policy],
                    pass_fds=[theirs],
                    start_new_session=True,
                    cwd=run_dir,
                    env=inherited_variables({**(variables or {}), process_tags.VARIABLE: str(run_dir)}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        process_tags.tag(popen.pid, run_dir)
        return cls(run_dir, popen.pid, process_ids.started(popen.pid), ours, popen)

    @classmethod
    def take_over(cls, run_dir: Path, pid: int | None, started: float | None) -> tuple[RunProcess, bool]:
        """The child of a runner that died, and whether it was adopted. If not, what is left of it is only ended."""
        pipe = _adopt(run_dir, pid, started)
        process = cls(run_dir, pid or 0, started or 0.0, pipe, None)
        for first, *_, session, began in read_child_file(run_dir / PROCESS_FILE).get("family") or ():
            process._family.add(Member(int(first), int(session), began))
        return process, pipe is not None

    def begin(self, message: Mapping[str, Any]) -> None:
        """Let a started child go to work, with what only it may know."""
        assert self._pipe is not None
        try:
            os.write(self._pipe, json.dumps(dict(message)).encode() + b"\n")
        except BrokenPipeError:  # it died at once, as `poll` will show
            pass

    # Watching

    def poll(self) -> bool:
        """Whether the leader still runs."""
        if not self._ended and not process_ids.alive(self.pid, self.started):
            self._ended = True
            self._clean_up()
        return not self._ended

    def look(self) -> None:
        """Remember which processes belong to this run."""
        processes = process_ids.all_processes()
        found = {*process_ids.descendants([self.pid], processes), *self._survivors(processes)}
        self._family = {Member(each.pid, each.session, each.started) for each in found}

    @property
    def family(self) -> list[Member]:
        """The processes of this run, as of the last look."""
        return sorted(self._family)

    def record_family(self) -> None:
        """Write down the family: if runner and child die together, the next runner ends the rest."""
        self.look()
        if self.family != self._recorded:
            path = self.run_dir / PROCESS_FILE
            write_child_file(path, read_child_file(path) | {"family": self.family})
            self._recorded = self.family

    def remains(self) -> list[Process]:
        """What still lives of the run."""
        processes = process_ids.all_processes()
        known = {*self._survivors(processes), *process_tags.tagged(self.run_dir, processes)}
        return list(process_ids.descendants([each.pid for each in known], processes))

    def _survivors(self, processes: dict[int, Process]) -> list[Process]:
        """Of these processes, the remembered ones and those in a session of one of them."""
        if self.pid <= 1:
            return []
        known = {each.pid: each.started for each in self._family} | {self.pid: self.started}
        sessions = {each.session: each.started for each in self._family} | {self.pid: self.started}
        # Never those we share with others: our own, and 0, that of processes from outside this pid namespace.
        for shared in (0, os.getsid(0)):
            sessions.pop(shared, None)
        return [
            each
            for each in processes.values()
            if (each.pid in known and process_ids.same_start(each.started, known[each.pid]))
            or (each.session in sessions and _is_old_session(each.session, sessions[each.session], processes))
        ]

    # Ending

    def ask_to_end(self, grace: float | None = None) -> None:
        """SIGTERM to the group: save and end. After `grace` seconds it is overdue."""
        if self._deadline is None and not self._ended:
            self._deadline = time.monotonic() + (GRACE_SECONDS if grace is None else grace)
            self.look()
            self._signal(signal.SIGTERM)

    @property
    def overdue(self) -> bool:
        """Whether it was asked to end and had its time."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def kill(self) -> None:
        """End everything of this run, now."""
        if not self._ended:
            self.look()
            self._signal(signal.SIGKILL)
        self._kill_remains()

    def release(self) -> None:
        """Close the pipe without ending the child: another runner has it, or it may not begin."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _clean_up(self) -> None:
        if self._popen is not None:
            # Not reaped yet: the group's id stays its own until the rest of the group is dead.
            self._signal(signal.SIGKILL)
            self.code = self._popen.wait()
        self._kill_remains()
        remove_orphaned_dirs()
        self.release()
        fifo_path(self.run_dir, self.pid).unlink(missing_ok=True)

    def _kill_remains(self) -> None:
        """The youngest first: a guard, older than what it guards, is the last that could still find others."""
        for process in sorted(self.remains(), key=lambda each: each.started, reverse=True):
            if process_ids.alive(process.pid, process.started):
                process_ids.send_signal(signal.SIGKILL, process.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid > 1:
            process_ids.send_signal(number, self.pid, send=os.killpg)


def inherited_variables(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where things are, never a key, and what is set for this run (`extra`)."""
    kept = {
        name: value for name, value in os.environ.items() if name in _PASSED_NAMES or name.startswith(_PASSED_PREFIXES)
    }
    # An environment that uses the SDK must not start a platform of its own.
    return {**kept, "PYTHONUNBUFFERED": "1", "BENCHMAX_NO_AUTO_START": "1", **(extra or {})}


def _adopt(run_dir: Path, pid: int | None, started: float | None) -> int | None:
    """Open the fifo of a living child, which ends its wait; None when it is gone or does not wait for a runner."""
    if pid is None or not process_ids.alive(pid, started) or str(run_dir) not in process_ids.command_line(pid):
        return None
    try:
        fifo = os.open(fifo_path(run_dir, pid), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    os.write(fifo, b"adopted\n")
    return fifo


def _is_old_session(session: int, started: float, processes: dict[int, Process]) -> bool:
    """Whether a session is the remembered one: its number may have been given again after it had emptied."""
    leader = processes.get(session)
    return leader is None or leader.started <= started
