"""Processes as the kernel names them: by pid *and* start time, so that a number used again is never taken for the old.

Start times are seconds since boot: they do not move when somebody sets the clock. Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One process of the system."""

    pid: int
    parent: int
    group: int
    session: int
    started: float
    """Seconds since boot."""
    gone: bool
    """A zombie: it has ended and only waits to be counted."""


def find(pid: int) -> Process | None:
    """The process of that pid, if there is one."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The second field is the program's name and may hold anything, blanks and brackets too.
    fields = text.rpartition(")")[2].split()
    return Process(
        pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]) / _TICKS, fields[0] in ("Z", "X")
    )


def stopped(pid: int) -> bool:
    """Whether a signal (or a debugger) holds the process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in ("T", "t")


def started(pid: int) -> float:
    """When a process started; 0 when there is none."""
    process = find(pid)
    return process.started if process else 0.0


def alive(pid: int | None, start: float | None) -> bool:
    """Whether this very process still runs."""
    if pid is None or start is None:
        return False
    process = find(pid)
    return process is not None and not process.gone and same_start(process.started, start)


def same_start(one: float, other: float) -> bool:
    return abs(one - other) < 0.5 / _TICKS


def command_line(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [os.fsdecode(word) for word in words if word]


def with_variable(name: str, value: str, processes: dict[int, Process]) -> list[Process]:
    """Of these processes, those that began with this variable in their environment."""
    wanted = os.fsencode(f"{name}={value}")
    return [each for each in processes.values() if wanted in _variables(each.pid)]


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def everything() -> dict[int, Process]:
    """All processes that have not ended."""
    found = (find(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in found if process is not None and not process.gone}


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
