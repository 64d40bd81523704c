"""The processes that an agent has started, and what they left behind."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress

import psutil

from benchmax.errors import UsageError
from benchmax.sandbox.inside import kernel

MOST_GENERATIONS = 20


def end_children() -> None:
    """Kill all that this process started, and the orphans that this makes its children; for an agent that ends."""
    for _ in range(MOST_GENERATIONS):
        if not (children := psutil.Process().children()):
            return
        for child in children:
            kernel.kill_group(child.pid)
            with suppress(OSError):  # another thread waited for it
                os.waitpid(child.pid, 0)


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
