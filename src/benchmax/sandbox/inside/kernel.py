"""System calls that Python has no function for, by ctypes, with the kernel's own names for flags.

Covered: Linux on x86_64 and aarch64. Elsewhere the functions raise OSError, and no guard that needs them holds.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import struct
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
MS_BIND = 4096
MNT_DETACH = 2
RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
"""Of mount_setattr; the same numbers as mount(2) has for them, by chance."""

_PDEATHSIG, _DUMPABLE, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS, _AMBIENT = 1, 4, 24, 36, 38, 47
_AMBIENT_CLEAR = 4
_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4

_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _MOUNT_SETATTR = 428, 429, 436, 442
MACHINE = platform.machine()
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE, -1)
SECCOMP = {"x86_64": 317, "aarch64": 277}.get(MACHINE, -1)

_LARGE, _COLLAPSE = 1 << 21, 25
PACKET_BYTES = 200_000
"""The longest message between client, fork server and zygote."""


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """A function of the C library that returns -1 and sets errno when it fails."""
    result = int(getattr(_libc(), name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    return call("syscall", ctypes.c_long(number), *arguments)


# Namespaces


def unshare(flags: int) -> None:
    call("unshare", flags)


def setns(descriptor: int, flags: int) -> None:
    call("setns", descriptor, flags)


def map_ids(proc: int, inside: int, outside_user: int, outside_group: int) -> None:
    """Give a new user namespace its one user and group; `proc` is a descriptor of /proc/self."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside_user} 1"),
        ("gid_map", f"{inside} {outside_group} 1"),
    ):
        write(name, text, proc)


# Mounts


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    call("mount", source.encode(), os.fsencode(target), kind and kind.encode(), flags, data and data.encode())


def make_private() -> None:
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def clone_tree(path: str) -> int:
    """A descriptor of a copy of the mounts at `path` and below, not attached anywhere."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)


def attach_tree(tree: int, target: str) -> None:
    syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)


def restrict_tree(tree: int, attributes: int) -> None:
    """Set RDONLY, NOSUID, … on a copy of mounts, those below included."""
    asked = struct.pack("QQQQ", attributes, 0, 0, 0)
    syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, asked, len(asked))


def restrict_mount(path: str, attributes: int) -> None:
    asked = struct.pack("QQQQ", attributes, 0, 0, 0)
    syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), 0, asked, len(asked))


def pivot_here() -> None:
    """Make the working directory, which is a mount, the root, and detach the old one."""
    if _PIVOT_ROOT < 0:
        raise OSError(38, f"no number is known for pivot_root on {MACHINE}")
    syscall(_PIVOT_ROOT, b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


# Rights


def no_new_privileges() -> None:
    call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities(kept: Sequence[int] = ()) -> None:
    """All but those kept, from every set, the bounding set included. Only root has any to keep."""
    call("prctl", _AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    for number in range(_CAPABILITIES):
        if number not in kept and int(_libc().prctl(_CAPBSET_DROP, number, 0, 0, 0)) < 0:
            break  # EINVAL beyond the last, EPERM where there is none to drop
    mask = sum(1 << number for number in kept) if os.geteuid() == 0 else 0
    call("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), struct.pack("6I", mask, mask, mask, 0, 0, 0))


def become(user: int) -> None:
    """For root: a user and group of this number, without supplementary groups."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    set_visible(True)


def set_visible(visible: bool) -> None:
    """Whether others of this user may read this process's memory; also whether its /proc files are its own."""
    call("prctl", _DUMPABLE, int(visible), 0, 0, 0)


def kill_group(pid: int) -> None:
    """A process and all of its group."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            pass


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this signal when the parent of this process dies, however it dies."""
    call("prctl", _PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Let orphans of descendants become children of this process."""
    call("prctl", _SUBREAPER, 1, 0, 0, 0)


def join_pages() -> None:
    """Move this process's memory into large pages, where it fills them: forks then have fewer to copy and free."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    for span, rights, *_, name in ([*line, ""][:6] for line in lines):
        if rights == "rw-p" and name in ("", "[heap]"):
            low, high = (int(end, 16) for end in span.split("-"))
            first, last = -(-low // _LARGE) * _LARGE, high // _LARGE * _LARGE
            if last > first:
                _libc().madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)


def memory_file(*parts: bytes, flags: int = 0) -> int:
    """A file with this content in memory, without a name; inside another sandbox, where that is refused, on the disk.

    The descriptor is at its beginning.
    """
    try:
        fd = os.memfd_create("file", os.MFD_CLOEXEC | flags)
    except OSError:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    with open(fd, "wb", closefd=False) as writer:
        for part in parts:
            writer.write(part)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def write(path: str, text: str, folder: int | None = None) -> None:
    """Write to a file of the kernel, in one call; `folder` is a descriptor of what the path is relative to."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    try:
        syscall(_CLOSE_RANGE, first, 0xFFFFFFFF, 0)
    except OSError:
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def receive(line: socket.socket, most_bytes: int, most_descriptors: int) -> tuple[bytes, list[int]]:
    """A packet, and the descriptors with it; empty when the other end is gone.

    Linux reports one that was killed before it had read all as an error, not as the end.
    """
    try:
        data, descriptors, _, _ = socket.recv_fds(line, most_bytes, most_descriptors)
    except OSError:
        return b"", []
    return data, descriptors
