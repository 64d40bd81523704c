"""What other processes hold, write and remove while a test looks at it: whatever goes meanwhile is left out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil


def listening_port(pid: int) -> int:
    """The first port that a process listens on."""
    for connection in psutil.Process(pid).net_connections("tcp4"):
        if connection.status == psutil.CONN_LISTEN:
            return int(connection.laddr.port)
    raise AssertionError("it does not listen")


def proportional_memory(pids: Iterable[int]) -> int:
    """Bytes of memory, those that processes share counted once."""
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_full_info().pss
        except psutil.Error:
            continue
    return total


def paths_under(folder: Path) -> list[Path]:
    """Everything below a folder. (`rglob` raises when a folder goes while it is walked.)"""
    return [Path(here, name) for here, folders, files in os.walk(folder) for name in (*folders, *files)]


def files_under(folder: Path) -> list[Path]:
    return [path for path in paths_under(folder) if path.is_file()]


def content(path: Path) -> bytes:
    """The bytes of a file; none when it is gone."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def mode(path: Path) -> int:
    """The permissions; none when it is gone."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return 0
