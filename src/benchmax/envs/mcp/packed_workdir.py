"""A workdir that travels with its environment's class.

    WORKDIR = PackedWorkdir(Path(__file__).parent)

    class MyEnv(ParallelMcpEnv):
        def __init__(self, num_servers: int = 4, **kwargs):
            super().__init__(WORKDIR, LocalProvisioner(WORKDIR, num_servers), **kwargs)

Where it is made, it is the folder itself. A bundle of the class contains the folder's files, as they are when it is
made; where the bundle is opened, they are unpacked into a temporary folder until the environment is shut down.
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

from benchmax.envs.mcp.workdir import CONFIG_NAMES, check_workdir
from benchmax.errors import EnvDefinitionError
from benchmax.files.temp_dirs import LOCK, make_owned_dir, remove_tree

MOST_BYTES = 32 * 2**20
"""The largest packed workdir that a bundle takes."""
_IGNORED = frozenset({LOCK, "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


class PackedWorkdir(os.PathLike[str]):
    """A path of a workdir that can be pickled with the files in it."""

    def __init__(self, workdir: str | os.PathLike[str]) -> None:
        self._folder: Path | None = check_workdir(workdir)
        self._packed: bytes | None = None

    def __fspath__(self) -> str:
        if self._folder is None:
            assert self._packed is not None
            self._folder = make_owned_dir("benchmax-workdir-")
            atexit.register(remove_tree, self._folder)
            unpack(self._packed, self._folder)
        return str(self._folder)

    @property
    def origin(self) -> str:
        """What distinguishes this workdir from others: its path, or, where it was unpacked, a digest of its content."""
        return str(self._folder) if self._packed is None else hashlib.sha256(self._packed).hexdigest()

    def drop(self) -> None:
        """Remove the folder if it was unpacked; it is unpacked again when it is needed."""
        if self._packed is not None and self._folder is not None:
            remove_tree(self._folder)
            self._folder = None

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self._packed if self._packed is not None else pack(Path(self))
        if len(packed) > MOST_BYTES:
            raise EnvDefinitionError(
                f"The workdir {self._folder} has {len(packed):,} bytes, packed; a bundle takes {MOST_BYTES:,}. "
                "Leave out what setup.sh can install."
            )
        return _unpacked_later, (packed,)


Luggage = PackedWorkdir
"""The name in earlier versions."""


def _unpacked_later(packed: bytes) -> PackedWorkdir:
    """What pickles call, also those of earlier versions."""
    workdir = PackedWorkdir.__new__(PackedWorkdir)
    workdir._folder, workdir._packed = None, packed
    return workdir


def ignored_names(folder: str, names: list[str]) -> set[str]:
    """What is not copied with a workdir: caches, pipes, sockets, and the workdir's own `.git`.

    A repository in a folder of the workdir is data, and is copied.
    """
    own = {".git"} if any(name in names for name in CONFIG_NAMES) else set()
    return {name for name in names if name in _IGNORED | own or not _has_content(Path(folder, name))}


def copy_workdir(source: Path, target: Path) -> None:
    """Copy a workdir without what is ignored. Links that lead out of it lead to the same place from the copy."""
    shutil.copytree(source, target, symlinks=True, ignore=ignored_names)
    for place, folders, files in os.walk(target):
        for link in (Path(place, name) for name in (*folders, *files) if os.path.islink(os.path.join(place, name))):
            leads_to = Path(os.path.realpath(source / link.relative_to(target)))
            if not os.path.isabs(os.readlink(link)) and not leads_to.is_relative_to(source.resolve()):
                link.unlink()
                link.symlink_to(leads_to)


def _has_content(path: Path) -> bool:
    return path.is_symlink() or path.is_file() or path.is_dir()


def pack(folder: Path) -> bytes:
    """A folder as a zip archive, with the modes of its files."""
    packed = io.BytesIO()
    # Some package managers date all files 1970, which is earlier than a zip archive can say.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path, folders, files in os.walk(folder):
            skipped = ignored_names(path, folders + files)
            folders[:] = sorted(set(folders) - skipped)
            for name in sorted(set(files) - skipped):
                if Path(path, name).is_file():  # not a broken link
                    archive.write(Path(path, name), Path(path, name).relative_to(folder))
    return packed.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """The inverse of `pack`; scripts stay executable."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            if mode := entry.external_attr >> 16:
                path.chmod(mode & 0o777)
