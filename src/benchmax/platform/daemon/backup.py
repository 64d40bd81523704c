"""Copies everything into one archive, while the platform works: untar it into an empty data directory to restore.

The database comes first, by SQLite's own online copy; files come after it, so whatever its rows name is there. Record
files only grow, and one that has grown further is read on from where the database knew it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from benchmax.errors import NotFoundError, UsageError
from benchmax.files.atomic import replacing
from benchmax.files.links import open_plain
from benchmax.platform.store.datadir import DataDir

CACHES = ("runs/*/exports", "runs/*/evals/*/model")
"""Folders whose content can be made again. Of the data directory itself only what is named here goes in."""


def back_up(data: DataDir, target: Path, *, database: bool = True) -> Path:
    """Write the backup; `database=False` for a PostgreSQL one, which its own tools copy."""
    if database and not data.database.exists():
        raise NotFoundError(f"There is no database in {data.root}. Give the data directory with --data-dir.")
    if target.exists():
        raise UsageError(f"{target} exists. Give the name of a new file.")
    mode = "w:gz" if target.name.endswith(("gz", ".tgz")) else "w"
    with (
        replacing(target, private=True) as file,
        tarfile.open(fileobj=file, mode=mode) as archive,  # type: ignore[call-overload]
    ):
        if database:
            _add_database(archive, data.database)
        for path in _files(data):
            _add(archive, path, str(path.relative_to(data.root)))
    return target


def _add_database(archive: tarfile.TarFile, path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="benchmax-backup-", dir=path.parent) as folder:
        copy = Path(folder) / path.name
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as sink:
            source.backup(sink)
        _add(archive, copy, path.name)


def _files(data: DataDir) -> Iterator[Path]:
    for file in (data.secret_key, data.credentials):
        if file.exists():
            yield file
    for root in (data.blobs, data.runs):
        for folder, folders, names in os.walk(root):
            here = Path(folder)
            folders[:] = [name for name in sorted(folders) if not _is_left_out(here / name)]
            yield here
            yield from (here / name for name in sorted(names) if not name.startswith("."))


def _is_left_out(folder: Path) -> bool:
    return folder.name.startswith(".") or any(folder.match(pattern) for pattern in CACHES)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """As many bytes as the file has now; one that is gone or shrank meanwhile was moved aside, and is left out.

    Whatever it was here, what is unpacked is its owner's alone.
    """
    if path.is_dir() and not path.is_symlink():
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
        archive.addfile(folder)
        return
    try:
        with open_plain(path.parent, path.name) as file:
            info = archive.gettarinfo(arcname=name, fileobj=file)
            info.mode = 0o600
            # It never ends early: a tar entry must be as long as it said.
            padded = SimpleNamespace(read=lambda size: file.read(size).ljust(size, b"\n"))
            archive.addfile(info, padded)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):  # a link: what it leads to is not the run's
            raise
