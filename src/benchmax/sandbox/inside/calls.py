"""One call, as the server keeps it, and what is the same for all."""

from __future__ import annotations

import math
import signal
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


ALIKE = ("fork", "tells", "shape", "network", "port")
"""What of an order decides how its process is made ready."""


class Running:
    """One call, or a process that stands ready for one."""

    def __init__(self, ticket: int, order: dict[str, Any], fds: list[int]) -> None:
        self.ticket = ticket
        """Its number among all processes of the server."""
        self.order, self.fds = order, fds
        self.number = int(order.get("call", 0))
        """The client's; 0 as long as it waits for a call."""
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

    def takes(self, other: Running) -> bool:
        """Whether the other call can be run by this process that stands ready, or soon will."""
        return self.failed is None and self.by is None and self.kind == other.kind

    def note_failure(self, reason: str | None) -> None:
        """Why it could not begin, unless it was to end before: then its room went from under it."""
        if reason is not None and self.by is None:
            self.failed = reason

    @property
    def may_wait(self) -> bool:
        """Whether its process can be made ready before its call comes; a room on the disk is one call's own."""
        return not self.order["tells"] and self.order["shape"]["workspace"] is None

    @property
    def kind(self) -> dict[str, Any]:
        return {name: self.order[name] for name in ALIKE}

    def is_due(self, now: float) -> bool:
        """Whether what it uses is to be looked at."""
        return self.deadline is not None and self.usage is not None and self.usage.next <= now

    def limits(self, data_bytes: int) -> dict[str, Any]:
        """A limit on one process's data is told to Python as MemoryError; other programs reserve more than they use."""
        given = self.order["limits"]
        bound = self.order["fork"] == "code" and given["memory"] < math.inf
        return {**given, "data": given["memory"] + data_bytes if bound else 0}

    def report(self) -> dict[str, Any]:
        """What is said of its end."""
        status = self.status if self.by is None else -signal.SIGKILL
        by = "cpu" if self.by is None and status == -signal.SIGXCPU else self.by
        used = {"cpu": self.usage.cpu, "memory": self.usage.memory} if self.usage else {"cpu": 0.0, "memory": 0}
        return {"ended": self.number, "status": status, "by": by, "refused": self.refused, **used}


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
