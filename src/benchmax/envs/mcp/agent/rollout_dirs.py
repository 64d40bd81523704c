"""Temporary folders that are removed by their maker, or, when it was killed, by the next who makes one.

Each holds a file that says which process made it. A number alone would not do, as another process may have it later.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PREFIXES = ("benchmax-mcp-", "benchmax-servers-", "benchmax-workdir-")
OWNER = ".owner"
_MOST_ROUNDS = 100_000
"""More than any tree is deep; a folder that others go on filling is left in the end."""


def claimed(prefix: str) -> Path:
    """A new temporary folder of this process's own."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    (folder / OWNER).write_text(f"{os.getpid()} {_birth(os.getpid())}")
    return folder


def sweep() -> None:
    """Remove the folders of processes of this user that are no more."""
    for folder in Path(tempfile.gettempdir()).glob("benchmax-*"):
        if folder.name.startswith(PREFIXES) and _is_orphaned(folder):
            remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder, whatever a server made of it: folders without end, or ones that nobody may read.

    Each folder in it is emptied into the top one, so that no path is longer than two names and nothing recurses.
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


def _unlinked(path: str | Path) -> bool:
    """Delete it, unless it is a folder."""
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
    except OSError:  # it is gone, or cannot be
        pass


def _is_orphaned(folder: Path) -> bool:
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        pid, birth = (folder / OWNER).read_text().split()
        return _birth(int(pid)) != birth
    except (OSError, ValueError):  # it is being made, or somebody else's
        return False


def _birth(pid: int) -> str:
    """When a process began, in ticks of the machine; nothing when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return "-"
