"""How a run's processes are known, whoever their parents are by now: by two marks that a child inherits.

The variable names the run's folder; a process may be started without it. The limit, RLIMIT_RSS, holds a number made
from the folder's path: Linux has long ceased to heed it, but hands it down whatever becomes of variables, sessions and
parents, and only root may raise it. The marks of MCP servers are in another limit, so a process can have both.
"""

from __future__ import annotations

import hashlib
import resource
from pathlib import Path

from benchmax.platform.runner.processes import process_ids as proc

VARIABLE = "BENCHMAX_RUN_DIR"

_FLOOR = 1 << 62
"""Marks are from here on: programs that believe in the limit take it for more memory than there is."""


def mark(pid: int, run_dir: Path) -> None:
    """Mark a process that has not started others yet; its variable is set by who starts it."""
    number = _number(run_dir)
    try:
        resource.prlimit(pid, resource.RLIMIT_RSS, (number, number))
    except (OSError, ValueError):
        pass  # it is gone, or a limit that we may not raise is in force: the variable is left


def marked(run_dir: Path, processes: dict[int, proc.Process]) -> set[proc.Process]:
    """Of these processes, those that belong to the run in this folder."""
    number = _number(run_dir)
    by_limit = {each for each in processes.values() if _limit(each.pid) == number}
    return by_limit | set(proc.with_variable(VARIABLE, str(run_dir), processes))


def _number(run_dir: Path) -> int:
    digest = hashlib.sha256(bytes(run_dir)).digest()
    return _FLOOR | int.from_bytes(digest[:8], "big") >> 2


def _limit(pid: int) -> int | None:
    try:
        return resource.prlimit(pid, resource.RLIMIT_RSS)[1]
    except (OSError, ValueError):
        return None
