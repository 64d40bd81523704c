"""The parent of a process that runs a user's code: whatever that process leaves behind ends with it.

    starter ── guard ── the process ── what it starts
                 ▲                            │
                 └──── whoever loses its parent

A process can leave its session, clear its variables and lower its limits, so that nothing shows where it came from. But
on Linux one that loses its parent becomes the child of the nearest ancestor that asked for it. The guard asks, and
when the process ends, or the starter does, it kills its children until there are none.

Covered: whatever detaches. Not covered: code that kills its own guard; only a sandbox holds that.

Without psutil: this runs in the interpreter of the environment, which may not have it.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

from benchmax.sandbox.inside import kernel

_STARTER_GONE, _STOP = signal.SIGHUP, (signal.SIGTERM, signal.SIGINT)
"""Signals to the guard: the starter has ended, or asks it to end the process."""
_HANG_UP = getattr(select, "POLLRDHUP", 0)
"""Must be asked for; other hang-ups and errors are always reported."""


def go_under_guard(line: int, *, remove: Path | None = None) -> None:
    """Go on in a child of this process, which from now on is its guard; call it before there are threads.

    `line` is the end of a pipe or socket that hangs up when the starter is gone; then the folder `remove` is removed.
    """
    adopt_orphans()
    end_with_parent(_STARTER_GONE)
    guard = os.getpid()
    child = os.fork()
    if child:
        _guard(child, line, remove)
    os.setsid()
    end_with_parent(signal.SIGKILL)
    if os.getppid() != guard:  # it died before the line above
        os._exit(1)


def adopt_orphans() -> None:
    """Let what descendants leave behind become a child of this process."""
    if sys.platform == "linux":
        kernel.adopt_orphans()


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this signal when the parent of this process dies, however it dies."""
    if sys.platform == "linux":
        kernel.end_with_parent(number)


def _guard(child: int, line: int, remove: Path | None) -> NoReturn:
    """Wait for the end of the child or of the starter; then end everything, and end like the child."""
    status = None
    try:
        status, abandoned = _wait(child, line)
        status = end_children(child, status)
        if remove is not None and abandoned:
            shutil.rmtree(remove, ignore_errors=True)
    finally:
        _end_like(status)


def _wait(child: int, line: int) -> tuple[int | None, bool]:
    """How the child ended, if it did; and whether the starter is gone."""
    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, _STARTER_GONE, *_STOP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(child, signal.SIGUSR1))  # asks it where it is
    poller = select.poll()
    poller.register(woken, select.POLLIN)
    poller.register(line, _HANG_UP)
    while True:
        status = _reap(child)  # before the first wait, too: it may have ended before there was a handler
        if status is not None:
            return status, False
        ready = dict(poller.poll())
        signals = os.read(woken, 4096) if woken in ready else b""
        if line in ready or _STARTER_GONE in signals:
            return None, True
        if set(signals) & set(_STOP):
            return None, False


def _reap(child: int) -> int | None:
    """Reap all that has ended; returns how the child did, if it is among them."""
    found = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == child else found
    except ChildProcessError:
        pass
    return found


def end_children(child: int = 0, status: int | None = None) -> int | None:
    """Kill until no process is left: orphans become children of this process. Returns the status of `child`."""
    while True:
        for pid in _children(child):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        status = ended if pid == child else status
        more = _reap(child)
        status = status if more is None else more


def _children(child: int) -> list[int]:
    """All children of this process; without /proc, the one that is known."""
    own, found = str(os.getpid()), []
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return [child] if child else []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[1].decode() == own:
            found.append(int(name))
    return found


def _end_like(status: int | None) -> NoReturn:
    """End in the same way as the process, for whoever waits for the guard."""
    code = 1 if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)
