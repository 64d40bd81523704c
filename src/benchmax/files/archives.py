"""Unpacks an archive from an untrusted source.

Covered: names that lead elsewhere, links, devices, sparse files and compression that unfold into more than was sent,
too many names or repeated ones. All is checked before the first byte is written. Not covered: what is in the files.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from benchmax.errors import UsageError

MOST_ENTRIES = 10_000
_DRIVE = re.compile(r"[A-Za-z]:")


def unpack_tar(archive: Path, folder: Path) -> None:
    """Write the files of an uncompressed tar archive into a new folder; UsageError, and no folder, if it is no good."""
    folder.mkdir(parents=True)  # an existing one stays as it is
    try:
        with tarfile.open(archive, "r:") as tar:
            members = _checked(tar, archive.stat().st_size)
            for member in members:
                _write(tar, member, folder / member.name)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
            raise _refused("a file and a folder of one name") from None
        # tarfile raises errors of many kinds at forged headers.
        if isinstance(error, Exception) and not isinstance(error, OSError | UsageError):
            raise UsageError(f"{archive.name} is not a whole tar archive ({error}). Fetch it again.") from None
        raise


def _checked(tar: tarfile.TarFile, size: int) -> list[tarfile.TarInfo]:
    members: list[tarfile.TarInfo] = []
    seen: set[str] = set()
    for member in tar:
        members.append(member)
        if len(members) > MOST_ENTRIES:
            raise _refused(f"more than {MOST_ENTRIES:,} entries")
        if problem := _problem(member):
            raise _refused(f"{member.name[:80]!r}, {problem}")
        if (name := str(PurePosixPath(member.name)).casefold()) in seen:
            raise _refused(f"{member.name[:80]!r} twice")
        seen.add(name)
    if sum(member.size for member in members) > size:
        raise _refused("files that are larger than itself")
    return members


def _problem(member: tarfile.TarInfo) -> str:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()) or member.issparse():
        return "which is neither a plain file nor a folder"
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or _DRIVE.match(member.name):
        return "a name that leads elsewhere"
    if not path.parts or not member.name.isprintable():
        return "which is no name of a file"
    return ""


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with source, open(target, "xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _refused(what: str) -> UsageError:
    return UsageError(f"The archive holds {what}. Do not trust who made it.")
