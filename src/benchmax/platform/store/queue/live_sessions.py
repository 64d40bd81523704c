"""Live sessions: environments and models that the runner keeps open for the server, while they are used.

A live session is a folder `sessions/<id>` of the data directory. Server, runner and child communicate through its small
files, and over a socket in it:

    session.json   what is wanted; by the server         ready.json     the secret of the socket; by the child
    end.json       a request to end; by the server       activity.json  how busy it is; by the child
    inputs/        the bundle, if it is no run's         ended.json     why it ended; by the runner, written last

There is no row in the database: a live session belongs to this machine, and nothing of it is kept.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from benchmax.files.atomic import TEMPORARY, link_or_copy, read_object, replacing_folder, write_text
from benchmax.files.temp_dirs import remove_tree
from benchmax.platform.store.datadir import DataDir

SOCKET = "socket"
MESSAGE_BYTES = 128 * 1024 * 1024
"""The longest line on the socket."""

Status = Literal["starting", "ready", "ended"]


class SessionFolder:
    """One live session, by its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.asked = self.note("session")

    def note(self, name: str) -> dict[str, Any]:
        """One of the small files; empty when it is not there."""
        return read_object(self.path / f"{name}.json")

    def write(self, name: str, note: Mapping[str, Any]) -> None:
        write_text(self.path / f"{name}.json", json.dumps(note), private=True)

    @property
    def status(self) -> Status:
        if any((self.path / name).exists() for name in ("ended.json", "end.json")) or not self.path.exists():
            return "ended"
        return "ready" if (self.path / "ready.json").exists() else "starting"

    @property
    def reason(self) -> str:
        """Why it ended, or what it does."""
        for name, key in (("ended", "reason"), ("end", "reason"), ("child", "phase")):
            if words := self.note(name).get(key):
                return str(words)
        return "waiting for the runner"

    @property
    def was_begun(self) -> bool:
        """Whether the runner has seen it."""
        return (self.path / "child.json").exists() or (self.path / "process.json").exists()

    def ask_to_end(self, reason: str) -> None:
        """Ask the runner to end it."""
        if self.path.exists() and not (self.path / "end.json").exists():
            self.write("end", {"reason": reason})

    @contextmanager
    def socket_path(self) -> Iterator[str]:
        """A short name for the socket: the kernel takes no more than about a hundred characters."""
        if not hasattr(os, "O_PATH"):  # not Linux
            with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
                link = Path(temporary) / "s"
                link.symlink_to(self.path.absolute())
                yield f"{link}/{SOCKET}"
            return
        folder = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{folder}/{SOCKET}"
        finally:
            os.close(folder)


def create(data: DataDir, asked: Mapping[str, Any], inputs: Mapping[str, Path | bytes] | None = None) -> SessionFolder:
    """Ask for a live session. Its folder appears whole."""
    path = _root(data) / f"ses_{secrets.token_hex(16)}"
    with replacing_folder(path) as folder:
        (folder / "inputs").mkdir(mode=0o700)
        for file, content in (inputs or {}).items():
            target = folder / "inputs" / file
            if isinstance(content, bytes):
                target.write_bytes(content)
            else:
                link_or_copy(content, target)
        write_text(folder / "session.json", json.dumps({**asked, "created": time.time()}), private=True)
    return SessionFolder(path)


def find(data: DataDir, session_id: str, owner_id: str) -> SessionFolder | None:
    """The owner's live session of that id."""
    if not session_id.startswith("ses_") or not session_id[4:].isalnum() or len(session_id) > 80:
        return None
    folder = SessionFolder(_root(data) / session_id)
    return folder if folder.asked.get("owner_id") == owner_id else None


def every(data: DataDir) -> list[SessionFolder]:
    """All live sessions, oldest first."""
    try:
        names = [entry.name for entry in os.scandir(_root(data)) if entry.name.startswith("ses_")]
    except OSError:
        return []
    found = [SessionFolder(_root(data) / name) for name in names]
    return sorted(found, key=lambda folder: float(folder.asked.get("created", 0.0)))


def sweep(data: DataDir, ended_before: float) -> None:
    """Remove live sessions that ended before that time, and half-made folders of a server that died."""
    for folder in every(data):
        if folder.note("ended").get("time", ended_before) < ended_before:
            remove_tree(folder.path)
    for path in _root(data).glob(f"{TEMPORARY}*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - 3600:
                remove_tree(path)


def _root(data: DataDir) -> Path:
    return data.root / "sessions"
