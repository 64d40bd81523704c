"""Replaces a file or a directory in one step: a reader sees the old content or the new, never a part of it.

The new content is written beside the file and renamed over it. When something fails before that, the old file stays as
it was and nothing is left beside it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from benchmax.errors import UsageError
from benchmax.files.redaction import hide_texts, without_secrets

TEMPORARY = ".tmp-"
"""The prefix of files that are being written."""
_REPLACED = "replaced"
"""Where a directory that is being replaced waits, inside the new one, until that one has its name."""


@contextmanager
def replacing(path: Path, *, private: bool = False, durable: bool = True, keep: bool = False) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the block ends without an error.

    `private` lets only its owner read it; `durable` makes it survive a power cut; with `keep`, an existing file stays.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
    except OSError as error:
        error.filename = str(path)  # the name that the caller knows
        raise
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if keep:
            with suppress(FileExistsError):
                os.link(temporary, path)
        else:
            temporary.replace(path)
    except OSError as error:
        if error.filename is None:  # a full disk is reported when writing, not when opening
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, private: bool = False, durable: bool = True, keep: bool = False) -> None:
    """Replace a file by a text. Lone surrogates are kept as they are."""
    with replacing(path, private=private, durable=durable, keep=keep) as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace a file by a JSON value, indented for people, without the secrets of this process.

    Lone surrogates become question marks.
    """
    text = json.dumps(hide_texts(value, without_secrets), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text.encode("utf-8", "replace").decode(), durable=durable)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in such a file; empty when there is none."""
    try:
        return object_in(path.read_bytes()) or {}
    except OSError:
        return {}


def object_in(text: str | bytes) -> dict[str, Any] | None:
    """The object that a text holds as JSON; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file, so that it stays whatever becomes of the source; copy it from another disk, in one step."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        with source.open("rb") as file, replacing(target) as copy:
            shutil.copyfileobj(file, copy)


def refuse_filled(path: Path) -> None:
    """UsageError when a new folder cannot be made there: it is a file, or a folder with something in it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is not empty. Choose another folder, or remove it first.")


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `path` when the block ends without an error.

    After a kill between the two renames, `recover_folders` finishes what was begun. An empty folder that is there
    already keeps its identity: a shell may stand in it.
    """
    new = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}_{secrets.token_hex(4)}")
    new.mkdir(parents=True)
    try:
        yield new
        _sync(new)
        _put_in_place(new, path)
    except BaseException:
        if (new / _REPLACED).exists():
            with suppress(OSError):  # another has put a folder there meanwhile
                (new / _REPLACED).rename(path)
        shutil.rmtree(new, ignore_errors=True)
        raise
    _sync(path.parent)


def _put_in_place(new: Path, path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()):
        for file in new.iterdir():
            file.rename(path / file.name)
        new.rmdir()
        return
    if path.exists():
        path.rename(new / _REPLACED)
    new.rename(path)
    _remove(path / _REPLACED)


def _remove(path: Path) -> None:
    """Remove a folder, or a file or link that was in the place of one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def recover_folders(parent: Path) -> None:
    """Finish the replacements of folders in `parent` that a kill interrupted."""
    for replaced in parent.glob(f"{TEMPORARY}*/{_REPLACED}"):
        whole = replaced.parent  # and the one it replaces has already made room
        whole.rename(whole.with_name(whole.name.removeprefix(TEMPORARY).rpartition("-")[0]))
    for replaced in parent.glob(f"*/{_REPLACED}"):
        _remove(replaced)


def remove_temporary(folder: Path) -> None:
    """Remove half-made files and folders that a killed process left below `folder`."""
    for path in folder.rglob(f"{TEMPORARY}*"):
        _remove(path)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
