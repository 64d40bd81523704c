"""Writes and reads files of a rollout's workspace, and of nothing else.

A model's tools may have put anything there: links, pipes, any names. So a path is walked one folder at a time from the
workspace's own descriptor, no link is followed, and only regular files are opened.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from benchmax import limits
from benchmax.envs.mcp.workdir import MissingFile
from benchmax.errors import UsageError
from benchmax.files.links import FOLDER, open_plain

_PART_BYTES = 255
_MOST_PARTS = 32


def path_parts(path: str) -> list[str]:
    """The parts of a relative path inside a workspace; UsageError when it is not one."""
    surrogate = any("\ud800" <= letter <= "\udfff" for letter in path)  # no file system encodes it
    if not path or surrogate or "\0" in path or "\\" in path or path.startswith("/") or len(path) > 1024:
        raise UsageError(f"{path[:80]!r} is not a path inside the workspace. Give a relative one, such as notes/a.txt.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or path.endswith("/") or len(parts) > _MOST_PARTS:
        raise UsageError(f"{path[:80]!r} does not name a file. Give a relative path, such as notes/a.txt.")
    if ".." in parts or any(len(part.encode("utf-8", "replace")) > _PART_BYTES for part in parts):
        raise UsageError(f"{path[:80]!r} leads out of the workspace, or is too long. Give a path inside it.")
    return parts


@contextmanager
def _made_folder_of(workspace: Path, parts: list[str]) -> Iterator[int]:
    """The descriptor of a file's folder, which is created if needed."""
    fd = os.open(workspace, FOLDER)
    try:
        for part in parts[:-1]:
            try:
                os.mkdir(part, 0o700, dir_fd=fd)
                made = True
            except FileExistsError:
                made = False
            inner = os.open(part, FOLDER, dir_fd=fd)
            if made:
                _give_away(inner, fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _give_away(fd: int, folder: int) -> None:
    """As root: what is written belongs to the owner of its folder, as the servers run as that user."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.fchown(fd, owner.st_uid, owner.st_gid)


class FileTooLarge(UsageError):
    """A file has more bytes than a workspace takes."""


class Upload:
    """A file that is being written into a workspace; it appears there when it is complete.

    Threads write it, and `close` may be called while one does. So closing waits for a write, and no write follows it:
    the descriptor's number may belong to another file by then.
    """

    def __init__(self, workspace: Path, path: str) -> None:
        self._parts = path_parts(path)
        self._workspace = workspace
        self._size = 0
        self._temporary = f".upload-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._ended = False
        try:
            self._fd, self._file = _begun(workspace, self._temporary)
        except OSError as error:
            raise UsageError(f"{path!r} cannot be written: {error.strerror}. Check that the rollout is open.") from None

    def write(self, data: bytes) -> None:
        with self._lock:
            if self._ended:
                raise UsageError("The upload was cancelled. Begin it again.")
            self._size += len(data)
            if self._size > limits.MCP_FILE_BYTES:
                raise FileTooLarge(f"A file may have {limits.MCP_FILE_BYTES:,} bytes; this one has more. Split it.")
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]

    def finish(self) -> None:
        try:
            with _made_folder_of(self._workspace, self._parts) as folder:
                os.rename(self._temporary, self._parts[-1], src_dir_fd=self._fd, dst_dir_fd=folder)
        except OSError as error:
            name = "/".join(self._parts)
            raise UsageError(f"{name!r} cannot be written: {error.strerror}. Choose another name.") from None

    def close(self) -> None:
        """End the upload; a file that is not finished is removed."""
        with self._lock:
            self._ended = True
            os.close(self._file)
            try:
                os.unlink(self._temporary, dir_fd=self._fd)
            except OSError:  # it was renamed, or a server replaced it
                pass
            os.close(self._fd)


def _begun(workspace: Path, temporary: str) -> tuple[int, int]:
    """Descriptors of the workspace and of a new file in it."""
    folder = os.open(workspace, FOLDER)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=folder)
        _give_away(file, folder)
        return folder, file
    except OSError:
        os.close(folder)
        raise


def open_download(workspace: Path, path: str) -> BinaryIO:
    """A file of the workspace, opened for reading."""
    parts = path_parts(path)
    try:
        file = open_plain(workspace, Path(*parts))
    except OSError:
        raise MissingFile(
            f"There is no file {path!r} in the workspace, or it is not a regular one. Check it."
        ) from None
    size = os.fstat(file.fileno()).st_size
    if size > limits.MCP_FILE_BYTES:
        file.close()
        raise UsageError(f"{path!r} has {size:,} bytes; at most {limits.MCP_FILE_BYTES:,} can be read. Split it.")
    return file
