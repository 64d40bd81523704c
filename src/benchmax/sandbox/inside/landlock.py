"""Landlock: files by list, TCP ports by list, no signals and abstract sockets to the outside. Children inherit it.

A second layer behind the namespaces, and the first where there are none. It holds from Linux 5.13 for files, 6.7 for
TCP, 6.12 for signals and abstract sockets, and needs no rights.

Not covered by Landlock itself: UDP, and TCP by other ways than connect and bind, which is why `seccomp` refuses TCP
Fast Open and MPTCP; reading what is listed; names and sizes of files that are not.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable

from . import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_BENEATH, _PORT = 1, 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_BIND, _CONNECT = 1, 2
_SCOPES = 3
"""Abstract Unix sockets and signals."""
_PORTS = 65_536
NEEDS = {"landlock_files": 1, "landlock_tcp": 4, "landlock_scope": 6}
"""The version of Landlock that brought each guard."""


def version() -> int:
    """Of the kernel's Landlock; 0 when there is none."""
    try:
        return kernel.syscall(_CREATE, None, 0, _VERSION)
    except (OSError, AttributeError):
        return 0


def confine(
    guards: frozenset[str],
    read: Iterable[str],
    listed: Iterable[str],
    write: Iterable[str],
    tcp: bool,
    port: int | None,
) -> None:
    """Leave this process these paths, of those `listed` the names in them; with `tcp` no TCP but to serve `port`."""
    files = _files() if "landlock_files" in guards else 0
    ports = _BIND | _CONNECT if tcp and "landlock_tcp" in guards else 0
    scopes = _SCOPES if "landlock_scope" in guards else 0
    if not files | ports | scopes:
        return
    ruleset = _ruleset(files, ports, scopes)
    if files:
        for path in read:
            _allow(ruleset, path, _READ & files)
        for path in listed:
            _allow(ruleset, path, _READ_DIR & files)
        for path in write:
            _allow(ruleset, path, files)
    if ports and port is not None:
        kernel.syscall(_ADD, ruleset, _PORT, struct.pack("QQ", _BIND, port), 0)
    try:
        add(ruleset)
    finally:
        os.close(ruleset)


def closed_ports_ruleset(closed: Iterable[int]) -> int:
    """A ruleset that refuses connections to these ports, on every address; for `add`.

    To make it takes a fifth of a second, as every other port is named. It lets files be moved between folders, which
    Linux refuses under any ruleset that does not speak of it.
    """
    refer = _files() & _REFER
    ruleset = _ruleset(refer, _CONNECT, 0)
    shut = frozenset(closed)
    for port in range(_PORTS):
        if port not in shut:
            kernel.syscall(_ADD, ruleset, _PORT, struct.pack("QQ", _CONNECT, port), 0)
    if refer:
        _allow(ruleset, "/", refer)
    return ruleset


def add(ruleset: int) -> None:
    """Hold this process to a ruleset, too."""
    kernel.syscall(_RESTRICT, ruleset, 0)


def _files() -> int:
    known = version()
    return _FIRST | (_REFER if known > 1 else 0) | (_TRUNCATE if known > 2 else 0) | (_IOCTL if known > 4 else 0)


def _ruleset(files: int, ports: int, scopes: int) -> int:
    known = version()
    size = 8 if known < 4 else 16 if known < 6 else 24
    return kernel.syscall(_CREATE, struct.pack("QQQ", files, ports, scopes), size, 0)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there need not be allowed
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _ON_FILES
        kernel.syscall(_ADD, ruleset, _BENEATH, struct.pack("=Qi", access, fd), 0)
    finally:
        os.close(fd)
