"""Temporary directories that their maker removes, or, when it was killed, the next process that makes one.

Each holds a lock file, locked for as long as the process that made it lives.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmax.files.locks import lock_file

PREFIXES = (
    "benchmax-mcp-",
    "benchmax-servers-",
    "benchmax-workdir-",
    "benchmax-env-",
    "benchmax-rows-",
    "benchmax-calls-",
)
LOCK = ".owner-lock"
_MOST_ROUNDS = 100_000
"""More than any tree is deep. A directory that another process keeps filling is left after so many rounds."""
_locks: dict[Path, int] = {}


def make_owned_dir(prefix: str) -> Path:
    """A new temporary directory that belongs to this process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    unlocked = folder / f"{LOCK}-new"
    _locks[folder] = lock_file(unlocked)
    unlocked.rename(folder / LOCK)  # it appears locked, or another process could take it for an orphan's
    return folder


def remove_orphaned_dirs() -> None:
    """Remove the directories of this user's processes that have ended."""
    for folder in Path(tempfile.gettempdir()).glob("benchmax-*"):
        if folder.name.startswith(PREFIXES) and _is_orphaned(folder):
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Delete a directory whatever untrusted code left in it: very deep trees, or directories without permissions.

    The content of each inner directory moves to the top one, so that no path has more than two names and nothing
    recurses.
    """
    moved = 0
    for _ in range(_MOST_ROUNDS):
        inner = [each for each in _entries(folder) if not _unlinked(each)]
        if not inner:
            break
        for each in inner:
            for entry in _entries(each):
                if not _unlinked(entry):
                    moved += 1
                    _try(os.rename, entry, folder / f".removed-{moved}")
            _try(os.rmdir, each)
    _try(os.rmdir, folder)
    if (lock := _locks.pop(folder, None)) is not None:
        os.close(lock)


def _unlinked(path: str | Path) -> bool:
    """Delete it, unless it is a directory."""
    if os.path.isdir(path) and not os.path.islink(path):
        return False
    _try(os.unlink, path)
    return True


def _entries(folder: str | Path) -> list[str]:
    if os.path.islink(folder):
        return []
    _try(os.chmod, folder, 0o700)
    try:
        return [each.path for each in os.scandir(folder)]
    except OSError:
        return []


def _try(function: Callable[..., None], *given: Any) -> None:
    try:
        function(*given)
    except OSError:  # already gone, or impossible
        pass


def _is_orphaned(folder: Path) -> bool:
    """Whether the process that made it has ended; one without a lock file is being made, or is somebody else's."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / LOCK).is_file():
            return False
        os.close(lock_file(folder / LOCK))
    except OSError:
        return False
    return True
