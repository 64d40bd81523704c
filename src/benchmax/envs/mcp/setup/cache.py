"""The results of setup.sh, kept so that it runs once for its content and not with every command.

    $BENCHMAX_HOME/mcp-setup/
      KEY            the name of the folder to use for this content
      KEY.building   locked while setup.sh runs
      KEY-1a2b3c4d/  venv/, workdir/ (the copy of the workdir that it ran in), setup.log, made.json, lock

setup.sh runs in a copy of the workdir that is kept, as what it installs may contain that path. Each later agent begins
with a fresh copy of the workdir; what setup.sh created is linked into it, what it changed is copied. A process that
uses a folder holds its lock, so that no folder is removed while it is in use.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmax import limits
from benchmax.envs.mcp.packed_workdir import copy_workdir
from benchmax.envs.mcp.setup.inputs import file_digest, setup_key
from benchmax.envs.mcp.workdir import PRIVATE_NAMES, Workdir
from benchmax.files.atomic import write_text
from benchmax.files.locks import lock_file

_MADE, _LOCK = "made.json", "lock"
_POLL_SECONDS = 0.1
_DAY = 86_400.0

Snapshot = dict[str, tuple[int, int, int, int]]


@dataclass(slots=True)
class Changes:
    """What setup.sh changed in its copy of the workdir, by relative path."""

    made: list[str] = field(default_factory=list)
    """New files and folders, without the content of new folders."""
    changed: dict[str, str] = field(default_factory=dict)
    """Files with new content, and the digests of the old."""
    removed: dict[str, str] = field(default_factory=dict)

    def fit(self, workdir: Path) -> bool:
        """Whether the files that were changed or removed are still the same in the workdir."""
        return all(_digest(workdir / name) == was for name, was in (*self.changed.items(), *self.removed.items()))

    def apply(self, source: Path, workdir: Path) -> None:
        """Make the same changes in another copy of the workdir."""
        for name in self.removed:
            _remove(workdir / name)
        for name in self.changed:
            shutil.copy2(source / name, workdir / name, follow_symlinks=False)
        for name in self.made:
            target, place = source / name, workdir / name
            if not os.path.lexists(place):  # else the user added it since
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(os.readlink(target) if target.is_symlink() else target)


@dataclass(slots=True)
class CacheEntry:
    """One folder of the cache, in use."""

    folder: Path
    lock: int
    changes: Changes = field(default_factory=Changes)
    kept: bool = True

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def copy(self) -> Path:
        return self.folder / "workdir"

    @property
    def readable(self) -> list[Path]:
        """What servers may read of it: all but rewards and configuration."""
        return [self.venv, *(each for each in sorted(self.copy.iterdir()) if each.name not in PRIVATE_NAMES)]

    def close(self) -> None:
        """Release it, and remove it unless it is to be kept."""
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


class SetupCache:
    """The cached results for one workdir."""

    def __init__(self, folder: Path, workdir: Workdir, origin: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._workdir = workdir.path
        self._key = setup_key(workdir, origin)

    def find(self) -> CacheEntry | None:
        """The result of an earlier run of setup.sh with this content."""
        try:
            name = (self._folder / self._key).read_text("utf-8").strip()
            lock = lock_file(self._folder / name / _LOCK, shared=True)
        except OSError:
            return None
        try:
            changes = Changes(**json.loads((self._folder / name / _MADE).read_text("utf-8")))
            entry = CacheEntry(self._folder / name, lock, changes)
            if entry.changes.fit(self._workdir):
                os.utime(self._folder / self._key)
                return entry
        except (OSError, ValueError, TypeError):
            pass
        os.close(lock)
        return None

    @asynccontextmanager
    async def building(self) -> AsyncIterator[None]:
        """Held while setup.sh runs, so that one process at a time runs it for the same content."""
        while True:
            try:
                lock = lock_file(self._folder / f"{self._key}.building")
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            os.close(lock)

    def begin(self) -> CacheEntry:
        """A new folder, with a copy of the workdir for setup.sh to run in."""
        folder = self._folder / f"{self._key}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        entry = CacheEntry(folder, lock_file(folder / _LOCK, shared=True), kept=False)
        try:
            copy_workdir(self._workdir, entry.copy)
        except BaseException:
            entry.close()
            raise
        return entry

    def keep(self, entry: CacheEntry) -> None:
        """Make this the result of setup.sh for this content."""
        (entry.folder / _MADE).write_text(json.dumps(asdict(entry.changes)), "utf-8")
        entry.kept = True
        write_text(self._folder / self._key, entry.folder.name)
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove unused folders that were replaced, left unfinished, or not needed for long."""
        wanted = set()
        for pointer in self._folder.iterdir():
            if pointer.is_file() and "." not in pointer.name:
                if time.time() - pointer.stat().st_mtime < limits.MCP_SETUP_DAYS * _DAY:
                    wanted.add(pointer.read_text("utf-8").strip())
                else:
                    pointer.unlink(missing_ok=True)
                    pointer.with_name(f"{pointer.name}.building").unlink(missing_ok=True)
        for folder in self._folder.iterdir():
            if folder.is_dir() and folder.name not in wanted:
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    try:
        lock = lock_file(folder / _LOCK)
    except OSError:  # in use
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


# What setup.sh changes in the workdir


def snapshot(folder: Path) -> Snapshot:
    """Type, size, time and inode of everything in a folder, to find changes later."""
    found: Snapshot = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            info = os.lstat(path)
            content = (0, 0, 0) if stat.S_ISDIR(info.st_mode) else (info.st_size, info.st_mtime_ns, info.st_ino)
            found[os.path.relpath(path, folder)] = (stat.S_IFMT(info.st_mode), *content)
    return found


def changes_since(before: Snapshot, folder: Path, original: Path) -> Changes:
    """What has changed in a folder since its snapshot; `original` is another copy of its earlier state."""
    after, changes = snapshot(folder), Changes()
    for name, what in after.items():
        was = before.get(name)
        if was is None or was[0] != what[0]:
            if os.path.dirname(name) in before or not os.path.dirname(name):
                changes.made.append(name)
        elif was != what and (before_digest := _digest(original / name)) != _digest(folder / name):
            changes.changed[name] = before_digest
    gone = (name for name in before if name not in after or after[name][0] != before[name][0])
    changes.removed = {name: _digest(original / name) for name in gone}
    return changes


def _digest(path: Path) -> str:
    """The digest of a file; one value for all folders, and one for what is missing."""
    try:
        return "folder" if path.is_dir() and not path.is_symlink() else file_digest(path)
    except OSError:
        return "missing"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
