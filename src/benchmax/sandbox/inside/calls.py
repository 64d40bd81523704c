"""What the server knows about one call, and the settings that all calls share."""

from __future__ import annotations

import math
import signal
import socket
from typing import Any

from . import landlock
from .call_process import TERMINALS
from .file_tree import readable
from .namespaces import Namespaces
from .resource_usage import Usage

TREE_WRITE = ("/tmp", "/dev/shm")
"""What a call may write besides its workspace, in a file tree of its own."""
TREE_READ = ("/etc", "/proc")
"""What Landlock lets it read besides, in a file tree of its own."""
MACHINE_READ = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/kernel")
"""The same where it sees the machine's files."""
READY_BY = ("fork", "reports_pid", "shape", "network", "port")
"""The parts of an order that decide how its process is made ready."""


class Running:
    """A call, or a process that is ready for one."""

    def __init__(self, ticket: int, order: dict[str, Any], fds: list[int]) -> None:
        self.ticket = ticket
        """Its number among all processes of this server."""
        self.order, self.fds = order, fds
        self.number = int(order.get("call", 0))
        """The number the client gave the call; 0 while the process waits for one."""
        self.namespaces: Namespaces | None = None
        self.pid, self.pidfd = 0, -1
        """Its first process, and a descriptor of it for the client, if it asked for one."""
        self.line: socket.socket | None = None
        self.listener = -1
        self.usage: Usage | None = None
        self.deadline: float | None = None
        self.status: int | None = None
        self.by: str | None = None
        self.failed: str | None = None
        self.refused: list[str] = []
        self.refusals = 0
        """System calls refused so far, repeated ones included."""

    def takes(self, other: Running) -> bool:
        """Whether this process, which is ready or soon will be, can run the other call."""
        return self.failed is None and self.by is None and self.kind == other.kind

    def note_failure(self, reason: str | None) -> None:
        """Record why it could not begin, unless it was already being ended, which removes its namespaces."""
        if reason is not None and self.by is None:
            self.failed = reason

    @property
    def may_wait(self) -> bool:
        """Whether its process can be made ready before the call comes; a workspace on the disk belongs to one call."""
        return not self.order["reports_pid"] and self.order["shape"]["workspace"] is None

    @property
    def kind(self) -> dict[str, Any]:
        return {name: self.order[name] for name in READY_BY}

    def is_due(self, now: float) -> bool:
        """Whether its usage is to be measured now."""
        return self.deadline is not None and self.usage is not None and self.usage.next <= now

    def limits(self, data_bytes: int) -> dict[str, Any]:
        """Its limits. Python gets one on data, which raises MemoryError; other programs reserve more than they use."""
        given = self.order["limits"]
        bound = self.order["fork"] == "code" and given["memory"] < math.inf
        return {**given, "data": given["memory"] + data_bytes if bound else 0}

    def report(self) -> dict[str, Any]:
        """What the client is sent at its end."""
        status = self.status if self.by is None else -signal.SIGKILL
        by = "cpu" if self.by is None and status == -signal.SIGXCPU else self.by
        used = {"cpu": self.usage.cpu, "memory": self.usage.memory} if self.usage else {"cpu": 0.0, "memory": 0}
        return {"ended": self.number, "status": status, "by": by, "refused": self.refused, **used}


def common(setup: dict[str, Any], guards: frozenset[str]) -> dict[str, Any]:
    """The parts of an order that are the same for all calls."""
    mount, view = "mount" in guards, setup["view"]
    read = [*readable(setup["read"]), *(TREE_READ if mount else MACHINE_READ)]
    listed, write = (["/"], [*TREE_WRITE]) if mount else ([], [])
    if view is not None:
        read, listed, write = view["allowed"], view["listed"], [*TERMINALS]
    ruleset = landlock.closed_ports_ruleset(setup["ports"]) if setup["ports"] and "landlock_tcp" in guards else -1
    held = {"guards": sorted(guards), "kept": setup["kept"], "ports_ruleset": ruleset}
    return {**held, "read": read, "listed": listed, "write": write}
