"""What setup.sh made, kept between runs, so that it runs once for its content and not with every command.

    $BENCHMAX_HOME/mcp-setup/
      KEY            the name of the folder to use for this content
      KEY.building   locked while setup.sh runs
      KEY-1a2b3c4d/  venv/, workdir/ (the copy of the workdir that it ran in), setup.log, made.json, lock

setup.sh runs in a copy of its own, as what it installs may hold that place's name. Each later run begins with a fresh
copy of the workdir; what setup.sh made there is linked into it, what it changed is copied. Whoever uses a folder holds
its lock, so that none is removed from under a running environment.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.mcp.agent.setup_inputs import file_digest, setup_key
from benchmax.envs.mcp.packed_workdir import left_behind
from benchmax.envs.mcp.workdir import CONFIG_NAMES, REWARD_FILE, SETUP_FILE, Workdir

_MADE, _LOCK = "made.json", "lock"
_POLL_SECONDS = 0.1
_DAY = 86_400.0

Snapshot = dict[str, tuple[int, int, int, int]]


@dataclass(slots=True)
class Changes:
    """What setup.sh did to its copy of the workdir, by relative path."""

    made: list[str] = field(default_factory=list)
    """New files and folders; of what lies in a new folder, only the folder."""
    changed: dict[str, str] = field(default_factory=dict)
    """Files with another content, and the digest of what they were."""
    removed: dict[str, str] = field(default_factory=dict)

    def fit(self, workdir: Path) -> bool:
        """Whether what was changed or removed is still what it was."""
        return all(_digest(workdir / name) == was for name, was in (*self.changed.items(), *self.removed.items()))

    def apply(self, source: Path, workdir: Path) -> None:
        """Do the same to another copy of the workdir."""
        for name in self.removed:
            _remove(workdir / name)
        for name in self.changed:
            shutil.copy2(source / name, workdir / name, follow_symlinks=False)
        for name in self.made:
            target, place = source / name, workdir / name
            if not os.path.lexists(place):  # else it was put there by hand since
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(os.readlink(target) if target.is_symlink() else target)


@dataclass(slots=True)
class Entry:
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

    def settle(self, before: Snapshot, workdir: Path) -> None:
        """setup.sh is done: see what it did to its copy of the workdir."""
        self.changes = changes_since(before, self.copy, workdir)

    @property
    def readable(self) -> list[Path]:
        """What servers may read of it: all but what scores and configures."""
        closed = (REWARD_FILE, SETUP_FILE, *CONFIG_NAMES)
        return [self.venv, *(each for each in sorted(self.copy.iterdir()) if each.name not in closed)]

    def close(self) -> None:
        """Use it no more; it is removed if it is not to be kept."""
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


class SetupCache:
    """The folders that are kept."""

    def __init__(self, folder: Path, workdir: Workdir, origin: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._workdir = workdir.path
        self._key = setup_key(workdir, origin)

    def find(self) -> Entry | None:
        """What an earlier run of setup.sh left for this content."""
        try:
            name = (self._folder / self._key).read_text("utf-8").strip()
            lock = _locked(self._folder / name / _LOCK, fcntl.LOCK_SH)
        except OSError:
            return None
        try:
            told: dict[str, Any] = json.loads((self._folder / name / _MADE).read_text("utf-8"))
            entry = Entry(self._folder / name, lock, Changes(**told))
            if entry.changes.fit(self._workdir):
                os.utime(self._folder / self._key)
                return entry
        except (OSError, ValueError, TypeError):
            pass
        os.close(lock)
        return None

    @asynccontextmanager
    async def building(self) -> AsyncIterator[None]:
        """One process at a time runs setup.sh for the same content."""
        while True:
            try:
                lock = _locked(self._folder / f"{self._key}.building", fcntl.LOCK_EX)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            os.close(lock)

    def begin(self) -> Entry:
        """A new folder, with a copy of the workdir for setup.sh to run in."""
        folder = self._folder / f"{self._key}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        entry = Entry(folder, _locked(folder / _LOCK, fcntl.LOCK_SH), kept=False)
        try:
            shutil.copytree(self._workdir, entry.copy, symlinks=True, ignore=left_behind)
        except BaseException:
            entry.close()
            raise
        return entry

    def keep(self, entry: Entry) -> None:
        """From now on this is what setup.sh made for this content."""
        told = {"made": entry.changes.made, "changed": entry.changes.changed, "removed": entry.changes.removed}
        (entry.folder / _MADE).write_text(json.dumps(told), "utf-8")
        entry.kept = True
        pointer = self._folder / f"{self._key}.{secrets.token_hex(4)}"
        pointer.write_text(entry.folder.name, "utf-8")
        pointer.replace(self._folder / self._key)
        self._sweep()

    def _sweep(self) -> None:
        """Remove folders that nobody uses and that were replaced, left unfinished, or not needed for long."""
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
        lock = _locked(folder / _LOCK, fcntl.LOCK_EX)
    except OSError:  # in use
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _locked(path: Path, how: int) -> int:
    """A descriptor that holds the lock of a file; BlockingIOError when somebody else does."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


# What a run of setup.sh does to the workdir


def snapshot(folder: Path) -> Snapshot:
    """Everything in a folder, as far as it takes to see later what is another."""
    found: Snapshot = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            info = os.lstat(path)
            told = (0, 0, 0) if stat.S_ISDIR(info.st_mode) else (info.st_size, info.st_mtime_ns, info.st_ino)
            found[os.path.relpath(path, folder)] = (stat.S_IFMT(info.st_mode), *told)
    return found


def changes_since(before: Snapshot, folder: Path, original: Path) -> Changes:
    """What is another in a folder than in the snapshot of it, of which `original` is a second copy."""
    after, changes = snapshot(folder), Changes()
    for name, what in after.items():
        was = before.get(name)
        if was is None or was[0] != what[0]:
            if os.path.dirname(name) in before or not os.path.dirname(name):
                changes.made.append(name)
        elif was != what and (told := _digest(original / name)) != _digest(folder / name):
            changes.changed[name] = told
    gone = (name for name in before if name not in after or after[name][0] != before[name][0])
    changes.removed = {name: _digest(original / name) for name in gone}
    return changes


def _digest(path: Path) -> str:
    """Of a file's content; folders are all alike, and so is what is missing."""
    try:
        return "folder" if path.is_dir() and not path.is_symlink() else file_digest(path)
    except OSError:
        return "missing"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
