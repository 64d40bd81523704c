"""The one directory everything lives in, private to its owner, and the locks for one server and one runner in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmax.config import data_dir, setting
from benchmax.errors import UsageError
from benchmax.files.atomic import read_object, write_text
from benchmax.files.locks import is_locked, lock_file


class DataDir:
    """Paths inside one data directory."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = (Path(root).expanduser() if root else data_dir()).absolute()
        self.blobs = self.root / "blobs"
        self.runs = self.root / "runs"
        self.venvs = self.root / "venvs"
        """Packages of environments; a cache."""
        self.logs = self.root / "logs"
        self.locks = self.root / "locks"
        self.database = self.root / "platform.db"
        self.database_note = self.root / "database.url"
        """The address of a database elsewhere, for the next start. It may hold a password."""
        self.secret_key = self.root / "secret.key"
        self.server_info = self.root / "server.json"
        """`{"url", "pid", "started"}` of the server that runs now."""
        self.runner_beat = self.locks / "runner.beat"
        """Touched whenever the runner's loop turns."""
        self.credentials = self.root / "credentials.json"
        """`{"url", "api_key"}` the local SDK signs in with."""

    def create(self) -> DataDir:
        """Make what is missing, readable by its owner alone."""
        for folder in (self.root, self.blobs, self.runs, self.logs, self.locks):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"Cannot make the data directory {folder}: {error.strerror}. Set BENCHMAX_DATA to another place."
                ) from None
        self.root.chmod(0o700)
        return self

    def run(self, run_id: str) -> Path:
        """The directory of one run."""
        if not run_id.replace("_", "").isalnum():
            raise UsageError(f"{run_id!r} is not the id of a run. `benchmax runs list` shows them.")
        return self.runs / run_id

    def database_url(self, given: str | None = None) -> str | None:
        """The database to use: as given, `BENCHMAX_DATABASE_URL`, that of the last start; None: this folder's own."""
        if url := given or setting("DATABASE_URL"):
            return url
        try:
            return self.database_note.read_text("utf-8").strip() or None
        except OSError:
            return None

    def note_database(self, url: str | None) -> None:
        """Record the database for the next start: with another one all runs would seem lost."""
        if url:
            write_text(self.database_note, url, private=True)
        else:
            self.database_note.unlink(missing_ok=True)

    @contextmanager
    def lock(self, name: str, wait: float = 0.0) -> Iterator[None]:
        """Hold the lock of `name` (server, runner) in this directory; the kernel frees it when the process dies.

        One that is about to end, and saves its runs first, is waited for, for `wait` seconds.
        """
        path = self.locks / f"{name}.lock"
        try:
            descriptor = lock_file(path, wait=wait)
        except BlockingIOError:
            raise UsageError(
                f"A {name} already runs on {self.root} (pid {_pid(path)}). "
                "Use that one, stop it with `benchmax down`, or set BENCHMAX_DATA to another directory."
            ) from None
        with open(descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid()}).encode(), 0)
            yield

    def holder(self, name: str) -> int | None:
        """The process that holds the lock of `name`, as the lock itself says."""
        path = self.locks / f"{name}.lock"
        pid = _pid(path)
        # Asking takes the lock for a moment, so it is only done when its holder may live.
        if not pid.isdecimal() or not psutil.pid_exists(int(pid)):
            return None
        return int(pid) if is_locked(path) else None


def _pid(path: Path) -> str:
    return str(read_object(path).get("pid", "unknown"))
