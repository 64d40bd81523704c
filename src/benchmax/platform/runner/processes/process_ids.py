"""Processes by pid *and* start time, so that a pid used again is never taken for the old process.

Start times are seconds since boot, which do not move when somebody sets the clock: psutil's create_time and boot_time
both do, their difference does not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import psutil

T = TypeVar("T")

_SAME_SECONDS = 0.005
"""Half of a kernel's clock tick."""


@dataclass(frozen=True)
class Process:
    """A process that has not ended, as it was found."""

    pid: int
    parent: int
    session: int
    found: psutil.Process = field(repr=False, compare=False)

    @cached_property
    def started(self) -> float:
        """Seconds from boot to its start; costs a read, so it is not asked of all processes."""
        return _started(self.found)


def find(pid: int) -> Process | None:
    """The process of that pid; None when there is none, or only a zombie."""
    try:
        found = psutil.Process(pid)
        with found.oneshot():
            if found.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            return Process(pid, found.ppid(), os.getsid(pid), found)
    except (psutil.Error, OSError, ValueError):
        return None


def stopped(pid: int) -> bool:
    """Whether a signal (or a debugger) holds the process."""
    return _ask(pid, lambda found: found.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP), False)


def started(pid: int) -> float:
    """When a process started; 0 when there is none."""
    return _ask(pid, _started, 0.0)


def _started(process: psutil.Process) -> float:
    try:
        return round(process.create_time() - psutil.boot_time(), 2)
    except psutil.Error:
        return 0.0


def alive(pid: int | None, start: float | None) -> bool:
    """Whether this very process still runs."""
    if pid is None or start is None:
        return False
    process = find(pid)
    return process is not None and same_start(process.started, start)


def same_start(one: float, other: float) -> bool:
    return abs(one - other) < _SAME_SECONDS


def command_line(pid: int) -> list[str]:
    return _ask(pid, psutil.Process.cmdline, [])


def _ask(pid: int, question: Callable[[psutil.Process], T], otherwise: T) -> T:
    """What the kernel says about a process; `otherwise` for one that is gone or may not be asked."""
    try:
        return question(psutil.Process(pid))
    except psutil.Error:
        return otherwise


def variable(process: Process, name: str) -> str | None:
    """The value a variable had when the process began; None when it is unset or may not be read."""
    try:
        return process.found.environ().get(name)
    except (psutil.Error, OSError):
        return None


def send_signal(number: signal.Signals, *pids: int | None, send: Callable[[int, int], None] = os.kill) -> None:
    """Send a signal to processes, or by `os.killpg` to groups, that may be gone or another user's."""
    for pid in filter(None, pids):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def all_processes() -> dict[int, Process]:
    """All processes that have not ended."""
    return {pid: process for pid in psutil.pids() if (process := find(pid)) is not None}


def descendants(roots: Iterable[int], processes: dict[int, Process]) -> set[Process]:
    """The roots and all that came from them, as far as parents still live."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[Process] = set()
    waiting = [pid for pid in roots if pid in processes]
    while waiting:
        pid = waiting.pop()
        if processes[pid] not in found:
            found.add(processes[pid])
            waiting += children.get(pid, ())
    return found
