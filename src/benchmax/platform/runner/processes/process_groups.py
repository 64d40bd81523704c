"""One process group for each run: started, adopted, ended, and checked to be gone.

The group's leader is in a session of its own. Environment processes have sessions of their own below it, so a child's
whole family is looked up while it lives and remembered: when the leader is killed, what it leaves behind is known. What
an environment sent into the background between two looks is known by the marks that all of a run's processes inherit.
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
from typing import Any

from benchmax.envs.remote.surroundings import PASSED_ON
from benchmax.platform.runner.processes import process_ids as proc
from benchmax.platform.runner.processes import process_tags as marks
from benchmax.platform.runner.processes.parent_watch import Policy, fifo_path

CHILD = "benchmax.platform.runner.children.train_child"
GRACE_SECONDS = 10.0
"""From SIGTERM to SIGKILL."""
LOG_BYTES = 32 * 1024 * 1024
"""A larger child.log is put aside when a child starts."""

_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "GOMP_", "MKL_", "KMP_", "ONEDNN_", "PYTORCH_", "PIP_", "UV_")
_NAMES = PASSED_ON | {
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
}


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a run's processes see of the runner's variables: where things are, never a key."""
    kept = {name: value for name, value in os.environ.items() if name in _NAMES or name.startswith(_PREFIXES)}
    # An environment that uses the SDK must not start a platform of its own.
    return {**kept, "PYTHONUNBUFFERED": "1", "BENCHMAX_NO_AUTO_START": "1", **(extra or {})}


class RunProcess:
    """The process group of one run."""

    def __init__(
        self, run_dir: Path, pid: int, started: float, line: int | None, popen: subprocess.Popen[bytes] | None
    ) -> None:
        self.run_dir = run_dir
        self.pid = pid
        self.started = started
        self._line = line
        """Our end of the lifeline. When this process dies the kernel closes it, and the child knows."""
        self._popen = popen
        self._family: set[proc.Process] = set()
        self._code: int | None = None
        self._ended = False
        self._deadline: float | None = None

    @classmethod
    def start(
        cls,
        run_dir: Path,
        *,
        policy: Policy = "adopt",
        variables: Mapping[str, str] | None = None,
        module: str = CHILD,
        command: Sequence[str] | None = None,
    ) -> RunProcess:
        """Start a child that waits for `begin`."""
        log = run_dir / "child.log"
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(run_dir / "child.log.1")
        program = command or (sys.executable, "-P", "-m", module)
        theirs, ours = os.pipe()
        try:
            with open(log, "ab", opener=_private) as output:
                popen = subprocess.Popen(
                    [*program, str(run_dir), "--lifeline", str(theirs), "--policy", policy],
                    pass_fds=[theirs],
                    start_new_session=True,
                    cwd=run_dir,
                    env=child_environment({**(variables or {}), marks.VARIABLE: str(run_dir)}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        marks.mark(popen.pid, run_dir)
        return cls(run_dir, popen.pid, proc.started(popen.pid), ours, popen)

    @classmethod
    def adopt(cls, run_dir: Path, pid: int | None, started: float | None) -> RunProcess | None:
        """Take over the child of a runner that died; None when it is not there any more, or does not wait for us."""
        if pid is None or started is None or not proc.alive(pid, started) or str(run_dir) not in proc.command_line(pid):
            return None
        try:
            line = os.open(fifo_path(run_dir, pid), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        os.write(line, b"adopted\n")
        return cls(run_dir, pid, started, line, None)

    @classmethod
    def found(cls, run_dir: Path, pid: int, started: float) -> RunProcess:
        """A child that cannot be adopted, or is gone: to be seen to its end."""
        return cls(run_dir, pid, started, None, None)

    def begin(self, word: Mapping[str, Any]) -> None:
        """Let a started child go to work, with what only it may know."""
        assert self._line is not None
        try:
            os.write(self._line, json.dumps(dict(word)).encode() + b"\n")
        except BrokenPipeError:  # it died at once; `poll` will tell
            pass

    # Watching

    def poll(self) -> bool:
        """Whether the leader still runs; remembers its family while it does."""
        if self._ended:
            return False
        if self._popen is None:
            self._ended = not proc.alive(self.pid, self.started)
        else:
            # Not reaped yet: the group's id stays its own until the rest of the group is dead.
            self._ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if self._ended:
            self._bury()
        return not self._ended

    def look(self) -> None:
        """Remember who belongs to this run."""
        processes = proc.everything()
        self._family = {*proc.descendants([self.pid], processes), *self._left(processes)}

    @property
    def family(self) -> list[list[float]]:
        """Who belongs to this run, to be written down for the next runner."""
        return sorted([each.pid, each.parent, each.group, each.session, each.started] for each in self._family)

    def remember(self, family: Sequence[Sequence[float]]) -> None:
        """What an earlier runner wrote down."""
        self._family |= {proc.Process(int(a), int(b), int(c), int(d), e, False) for a, b, c, d, e in family}

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None for an adopted child, whose parent is another."""
        return self._code

    def remains(self) -> list[proc.Process]:
        """What still lives of the run."""
        processes = proc.everything()
        return list({*self._left(processes), *marks.marked(self.run_dir, processes)})

    def _left(self, processes: dict[int, proc.Process]) -> list[proc.Process]:
        """Of these processes, the remembered ones and those in a session of one of them."""
        if self.pid <= 1:
            return []
        known = {(each.pid, each.started) for each in self._family} | {(self.pid, self.started)}
        sessions = {each.session: each.started for each in self._family} | {self.pid: self.started}
        # Never those we share with others: our own, and 0, that of processes from outside this pid namespace.
        for shared in (0, os.getsid(0)):
            sessions.pop(shared, None)
        return [
            each
            for each in processes.values()
            if (each.pid, each.started) in known
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
        for process in self.remains():
            _kill(process)

    def let_go(self) -> None:
        """Close our end of the lifeline without ending the child: another runner has it, or it may not begin."""
        if self._line is not None:
            os.close(self._line)
            self._line = None

    def _bury(self) -> None:
        if self._popen is not None:
            self._signal(signal.SIGKILL)
            self._code = self._popen.wait()
        for process in self.remains():
            _kill(process)
        self.let_go()
        fifo_path(self.run_dir, self.pid).unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid <= 1:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _is_old_session(session: int, started: float, processes: dict[int, proc.Process]) -> bool:
    """Whether a session is the remembered one: its number may have been given again after it had emptied."""
    leader = processes.get(session)
    return leader is None or leader.started <= started


def _kill(process: proc.Process) -> None:
    if proc.alive(process.pid, process.started):
        try:
            os.kill(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
