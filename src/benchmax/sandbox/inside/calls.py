"""One call, as the server keeps it, and what is the same for all."""

from __future__ import annotations

import socket
from typing import Any

from . import landlock
from .body import TERMINALS
from .room import Room
from .root import readable
from .watch import Usage

SHARED = ("/tmp", "/dev/shm")
"""What a call writes besides its workspace, where it has these for itself."""
OWN = ("/etc", "/proc")
MACHINE = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/kernel")
"""What Landlock opens besides: of the tree that is made for calls, or of the machine's where there is no other."""


class Running:
    """One call."""

    def __init__(self, order: dict[str, Any], fds: list[int]) -> None:
        self.order, self.fds = order, fds
        self.number = int(order["call"])
        self.room: Room | None = None
        self.pid, self.pidfd = 0, -1
        """Of its first process, and a descriptor of it where it is wanted elsewhere."""
        self.line: socket.socket | None = None
        self.listener = -1
        self.usage: Usage | None = None
        self.deadline: float | None = None
        self.status: int | None = None
        self.by: str | None = None
        self.failed: str | None = None
        self.refused: list[str] = []
        self.told = 0

    def is_due(self, now: float) -> bool:
        """Whether what it uses is to be looked at."""
        return self.deadline is not None and self.usage is not None and self.usage.next <= now


def common(setup: dict[str, Any], guards: frozenset[str]) -> dict[str, Any]:
    """What is the same for all calls."""
    mount, view = "mount" in guards, setup["view"]
    read = [*readable(setup["read"]), *(OWN if mount else MACHINE)]
    listed, write = (["/"], [*SHARED]) if mount else ([], [])
    if view is not None:
        read, listed, write = view["allowed"], view["listed"], [*TERMINALS]
    closing = landlock.closing(setup["ports"]) if setup["ports"] and "landlock_tcp" in guards else -1
    held = {"guards": sorted(guards), "kept": setup["kept"], "closing": closing}
    return {**held, "read": read, "listed": listed, "write": write}
