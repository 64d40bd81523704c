"""A workdir that goes where its environment's class goes.

    WORKDIR = Luggage(Path(__file__).parent)

    class MyEnv(ParallelMcpEnv):
        def __init__(self, num_servers: int = 4, **kwargs):
            super().__init__(WORKDIR, LocalProvisioner(WORKDIR, num_servers), **kwargs)

Here it stands for the folder itself. A bundle of the class holds the folder's files, as they are when it is made; where
the bundle is opened they lie in a folder of their own, until the environment is shut down.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

from benchmax.envs.mcp.agent.rollout_dirs import OWNER, claimed
from benchmax.envs.mcp.workdir import CONFIG_NAMES, check_workdir
from benchmax.errors import EnvDefinitionError

MOST_BYTES = 32 * 2**20
"""What a workdir may weigh in a bundle, packed."""
_CACHES = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


class Luggage(os.PathLike[str]):
    """A workdir, for every place that takes one."""

    def __init__(self, workdir: str | os.PathLike[str]) -> None:
        self._folder: Path | None = check_workdir(workdir)
        self._packed: bytes | None = None

    def __fspath__(self) -> str:
        if self._folder is None:
            assert self._packed is not None
            self._folder = claimed("benchmax-workdir-")
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
            unpack(self._packed, self._folder)
        return str(self._folder)

    @property
    def origin(self) -> str:
        """What tells this workdir from others: its place, or, where it was unpacked, its content."""
        return str(self._folder) if self._packed is None else hashlib.sha256(self._packed).hexdigest()

    def drop(self) -> None:
        """Remove the folder, if it was unpacked; it is unpacked again when it is needed."""
        if self._packed is not None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self._packed
        if packed is None:
            assert self._folder is not None
            packed = pack(self._folder)
        if len(packed) > MOST_BYTES:
            raise EnvDefinitionError(
                f"The workdir {self._folder} has {len(packed):,} bytes, packed; a bundle takes {MOST_BYTES:,}. "
                "Leave out what setup.sh can install."
            )
        return _unpacked_later, (packed,)


def _unpacked_later(packed: bytes) -> Luggage:
    luggage = Luggage.__new__(Luggage)
    luggage._folder, luggage._packed = None, packed
    return luggage


def left_behind(folder: str, names: list[str]) -> set[str]:
    """What of a workdir does not travel: caches, and pipes and sockets, in which there is nothing to copy.

    Nor does its own history, `.git` beside the configuration; a repository inside of it is data, and does.
    """
    own = {".git"} if any(name in names for name in CONFIG_NAMES) else set()
    return {name for name in names if name in {OWNER, *_CACHES, *own} or not _has_content(Path(folder, name))}


def _has_content(path: Path) -> bool:
    return path.is_symlink() or path.is_file() or path.is_dir()


def pack(folder: Path) -> bytes:
    """A folder as a zip, with its files' modes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, folders, files in os.walk(folder):
            skipped = left_behind(path, folders + files)
            folders[:] = sorted(set(folders) - skipped)
            for name in sorted(set(files) - skipped):
                if Path(path, name).is_file():  # not a link that leads nowhere here
                    archive.write(Path(path, name), Path(path, name).relative_to(folder))
    return packed.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """The inverse of `pack`; the modes come back too, so that scripts stay runnable."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            if mode := entry.external_attr >> 16:
                path.chmod(mode & 0o777)
