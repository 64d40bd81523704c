"""The processes that an agent has started, and whether this system has what starting them takes."""

from __future__ import annotations

import os
import socket
import sys

import psutil

from benchmax.errors import UsageError


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
