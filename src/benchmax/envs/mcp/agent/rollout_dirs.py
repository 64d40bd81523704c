"""Temporary folders that are removed by their maker, or, when it was killed, by the next who makes one.

Each holds a file that says which process made it. A number alone would not do, as another process may have it later.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PREFIXES = ("benchmax-mcp-", "benchmax-servers-", "benchmax-workdir-")
OWNER = ".owner"


def claimed(prefix: str) -> Path:
    """A new temporary folder of this process's own."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    (folder / OWNER).write_text(f"{os.getpid()} {_birth(os.getpid())}")
    return folder


def sweep() -> None:
    """Remove the folders of processes of this user that are no more."""
    for folder in Path(tempfile.gettempdir()).glob("benchmax-*"):
        if folder.name.startswith(PREFIXES) and _is_orphaned(folder):
            shutil.rmtree(folder, ignore_errors=True)


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
