"""How a run's processes are recognised, whoever their parents are by now: by two tags that every child inherits.

The variable names the run's folder; a process may be started without it. The limit, RLIMIT_RSS, holds a number made
from the folder's path: Linux no longer enforces it, but every process inherits it whatever becomes of variables,
sessions and parents, and only root may raise it. MCP servers are tagged in another limit, so a process can have both.
Where the limit of another process cannot be set, on macOS, only the variable is left.
"""

from __future__ import annotations

import hashlib
import resource
from pathlib import Path

from benchmax.platform.runner.processes.process_ids import Process, variable

VARIABLE = "BENCHMAX_RUN_DIR"

_prlimit = getattr(resource, "prlimit", None)
_FLOOR = 1 << 62
"""Tags are larger: programs that read the limit take it for more memory than there is."""


def tag(pid: int, run_dir: Path) -> None:
    """Tag a process that has not started others yet; its variable is set by whoever starts it."""
    if _prlimit is not None:
        number = _number(run_dir)
        try:
            _prlimit(pid, resource.RLIMIT_RSS, (number, number))
        except (OSError, ValueError):
            pass  # it is gone, or a limit is in force that only root may raise: the variable is left


def tagged(run_dir: Path, processes: dict[int, Process]) -> set[Process]:
    """Of these processes, those that belong to the run in this folder."""
    number, folder = _number(run_dir), str(run_dir)
    return {each for each in processes.values() if _limit(each.pid) == number or variable(each, VARIABLE) == folder}


def _number(run_dir: Path) -> int:
    digest = hashlib.sha256(bytes(run_dir)).digest()
    return _FLOOR | int.from_bytes(digest[:8], "big") >> 2


def _limit(pid: int) -> int | None:
    if _prlimit is None:
        return None
    try:
        hard: int = _prlimit(pid, resource.RLIMIT_RSS)[1]
    except (OSError, ValueError):
        return None
    return hard
