"""The processes that an agent has started, and what they left behind."""

from __future__ import annotations

import os
import socket
import sys

import psutil

from benchmax.errors import UsageError

MOST_GENERATIONS = 20


def end_children() -> None:
    """Kill all that this process started, and the orphans that this makes its children; for an agent that ends."""
    for _ in range(MOST_GENERATIONS):
        if not (children := psutil.Process().children()):
            return
        for child in children:
            _end(child.pid)


def _end(pid: int) -> None:
    """Kill a child of this process with its group, and reap it."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, 9)
        except OSError:
            pass
    try:
        os.waitpid(pid, 0)
    except OSError:
        pass


def living_children() -> list[int]:
    """The children of this process that have not ended."""
    return [child.pid for child in psutil.Process().children() if _is_alive(child)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def require_linux() -> None:
    """UsageError on a system without the calls that a sandbox makes."""
    if not hasattr(socket, "SOCK_SEQPACKET") or not hasattr(os, "pipe2") or not hasattr(os, "memfd_create"):
        raise UsageError(
            f"MCP servers run on Linux, not on {sys.platform}. Start an agent on a Linux machine, and use it here with "
            "ManualProvisioner."
        )
