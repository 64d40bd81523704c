"""Confines a server process to its own directory and to what every server may read.

Runs in the child between fork and the server's first line, under any Python from 3.9 with the standard library alone,
so that no psutil is used here. Importing it does no harm anywhere; calling it needs Linux.

Landlock (Linux 5.13 and later, no root needed) refuses every file that is not listed, access to processes outside, and
from Linux 6.12 on signals to them. Children inherit it and cannot remove it. Where the kernel has none, `confine`
returns False, and only the private directory's mode (0700) and the scrubbed variables remain.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import struct
import sys
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS, _PDEATHSIG, _DUMPABLE, _SUBREAPER, _DROP_BOUND = 38, 1, 4, 36, 24

_KEPT = {0, 1, 3, 4, 10}
"""Capabilities that root keeps: file ownership and access as listed, and low ports. Not: access to processes."""
_POWERS = 41

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_ALL = (1 << 13) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")

_LOCKS, _RTTIME = 10, 15
"""Limits that Linux does not apply here but passes on to children, and that only root may raise. They hold a mark: a
number and its mirror image, so that a process that lowers both to imitate another mark ends up with an invalid pair."""
_LOW = 0xFFFFFFFF
SHED = -1
"""Returned for a process that changed its mark."""

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 when it has none, or is not Linux."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, 1))) if sys.platform == "linux" else 0


def confine(read: Iterable[str], write: Iterable[str], listed: Iterable[str] = ()) -> bool:
    """Restrict this process and its children to these paths, in `listed` to names. Returns whether that is enforced."""
    version = landlock_version()
    if not version:
        return False
    handled = _ALL | (_REFER if version > 1 else 0) | (_TRUNCATE if version > 2 else 0) | (_IOCTL if version > 4 else 0)
    attributes = struct.pack("QQQ", handled, 0, 3 if version > 5 else 0)  # scoped: signals and abstract sockets
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _libc.syscall(_CREATE, attributes, size, 0)
    if ruleset < 0:
        return False
    try:
        for path in read:
            _allow(ruleset, path, _READ & handled)
        for path in listed:
            _allow(ruleset, path, _READ_DIR & handled)
        for path in write:
            _allow(ruleset, path, handled)
        for path in _DEVICES:
            _allow(ruleset, path, (_READ | _WRITE_FILE | _IOCTL) & handled)
        if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.syscall(_RESTRICT, ruleset, 0):
            raise OSError(ctypes.get_errno(), "Landlock refused to confine the server")
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _ON_FILES
        _libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", access, fd), 0)
    finally:
        os.close(fd)


def drop_powers() -> None:
    """For root: keep few capabilities, as some of the others bypass Landlock."""
    if os.geteuid() != 0:
        return
    for power in set(range(_POWERS)) - _KEPT:
        _libc.prctl(_DROP_BOUND, power, 0, 0, 0)
    kept = sum(1 << power for power in _KEPT)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    header, data = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", low, low, low, high, high, high)
    if _libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "cannot drop capabilities")


def limit(open_files: int, file_bytes: int) -> None:
    """Set limits: no core dumps, so many open files, and so many bytes in one file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, most in ((resource.RLIMIT_NOFILE, open_files), (resource.RLIMIT_FSIZE, file_bytes)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def mark(number: int) -> None:
    """Mark this process and all that it will start with a number that they cannot remove."""
    for kind, value in ((_LOCKS, number), (_RTTIME, _mirrored(number))):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _mirrored(number: int) -> int:
    return number - (number & _LOW) + _LOW - (number & _LOW)


def mark_of(pid: int) -> int | None:
    """The mark of a process, SHED when it changed it; None when it has none, or has ended."""
    try:
        number, mirrored = (resource.prlimit(pid, kind)[1] for kind in (_LOCKS, _RTTIME))
    except (OSError, ValueError):
        return None
    if (number, mirrored) == tuple(resource.getrlimit(kind)[1] for kind in (_LOCKS, _RTTIME)):
        return None
    return number if mirrored == _mirrored(number) else SHED


def die_with_parent(parent: int | None) -> None:
    """Kill this process when its parent ends, however that ends; None: no longer."""
    _libc.prctl(_PDEATHSIG, 9 if parent else 0, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)


def hide(hidden: bool = True) -> None:
    """Keep other processes of this user from reading this one's memory and variables."""
    _libc.prctl(_DUMPABLE, 0 if hidden else 1, 0, 0, 0)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process."""
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
