"""The file tree of a call: a small tmpfs, on it the system and what is named, read-only, and nothing else.

There is no home, no /run, no /var, no /sys and no data folder, unless named. /etc is a list of names that programs
need, with a `passwd` of one user. What is in a named folder is seen with all that is mounted there; device files in it
cannot be opened and setuid bits do nothing.

Not covered: what everybody on the machine may read in /usr is read here, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from . import kernel

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Where programs and libraries of the system lie."""
SETTINGS = (
    "alternatives", "ca-certificates", "crypto-policies", "fonts", "gai.conf", "host.conf", "hosts", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "pki", "protocols",
    "resolv.conf", "services", "ssl", "timezone",
)  # fmt: skip
"""What of /etc programs need. Folders are mounted and files copied: a call costs less with few mounts."""
DEVICES = ("null", "full", "random", "urandom")
"""Without /dev/zero, which offers shared memory that no process is charged for."""
WORKSPACE = "/workspace"
USER = 1000
"""The number of a call's user, as its code sees it."""
_SIZE = "size=8m,nr_inodes=4096,mode=755"
_MOST_BYTES = 1 << 20
_PASSWD = f"sandbox:x:{USER}:{USER}::{WORKSPACE}:/bin/sh\n".encode()
_GROUP = f"sandbox:x:{USER}:\n".encode()


def readable(named: Iterable[str]) -> list[str]:
    """All that a call may read, with links resolved, without duplicates and paths inside others."""
    paths = {os.path.realpath(path) for path in (*SYSTEM, *_settings(), *named) if os.path.exists(path)}
    if "/" in paths:
        raise OSError(22, "the whole disk cannot be opened to a sandbox; name folders")
    kept: list[str] = []
    for path in sorted(paths):
        if not _is_in(path, kept):
            kept.append(path)
    return kept


def _settings() -> list[str]:
    return [f"/etc/{name}" for name in SETTINGS]


def _copies() -> dict[str, bytes]:
    """Settings that are files, and that everybody may read."""
    found = {"/etc/passwd": _PASSWD, "/etc/group": _GROUP}
    for path in _settings():
        if os.path.isfile(path) and os.stat(path).st_mode & stat.S_IROTH and os.path.getsize(path) < _MOST_BYTES:
            with open(path, "rb") as file:
                found[path] = file.read()
    return found


def build(named: Iterable[str], own: str | None, hidden: Iterable[str] = ()) -> None:
    """Build the tree and make it the root. `own` is a folder that keeps its path and can be written.

    `hidden` are paths in named folders that nobody can open. If all of /etc is named, it is the machine's.
    """
    named = tuple(named)
    copies = {} if "/etc" in named else _copies()
    shown = [path for path in readable(named) if path not in map(os.path.realpath, copies)]
    trees = [(path, kernel.clone_tree(path), kernel.RDONLY | kernel.NOSUID | kernel.NODEV) for path in shown]
    trees += [(f"/dev/{name}", kernel.clone_tree(f"/dev/{name}"), kernel.NOSUID | kernel.NOEXEC) for name in DEVICES]
    trees.append(("/proc", kernel.clone_tree("/proc"), kernel.NOSUID | kernel.NODEV | kernel.NOEXEC))
    if own is not None:
        trees.append((own, kernel.clone_tree(own), kernel.NOSUID | kernel.NODEV))
    covered = [path for path in map(os.path.realpath, hidden) if _is_in(path, shown) and path != own]
    covered = [path for path in dict.fromkeys(covered) if os.path.exists(path)]
    links = _links(path for path in (*SYSTEM, *_settings(), *named) if path not in copies)
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, _SIZE)
    os.chdir("/tmp")
    os.umask(0o022)
    for path, tree, attributes in trees:
        make_place(path[1:], tree)
        kernel.restrict_tree(tree, attributes)
        kernel.attach_tree(tree, path[1:])
    _furnish(links, copies)
    _cover(covered)
    kernel.pivot_here()
    kernel.restrict_mount("/", kernel.RDONLY)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders)


def _cover(paths: Iterable[str]) -> None:
    """Mount something empty without permissions over each."""
    os.mkdir(".nothing", 0)
    os.close(os.open(".empty", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0))
    for path in paths:
        tree = kernel.clone_tree(".nothing" if os.path.isdir(path[1:]) else ".empty")
        kernel.restrict_tree(tree, kernel.RDONLY)
        kernel.attach_tree(tree, path[1:])


def _links(paths: Iterable[str]) -> dict[str, str]:
    """Names that are links, or lie behind one, and where they lead; read before the tree is hidden."""
    found = {path: os.path.realpath(path) for path in paths if os.path.exists(path)}
    return {path: real for path, real in found.items() if path != real}


def make_place(path: str, tree: int) -> None:
    """An empty folder or file to mount a tree on, as its root is one or the other."""
    if os.path.isdir(f"/proc/self/fd/{tree}"):
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _furnish(links: dict[str, str], copies: dict[str, bytes]) -> None:
    for name in (WORKSPACE[1:], "tmp", "dev/shm", "dev/pts", "etc"):
        os.makedirs(name, exist_ok=True)
    devices = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for path, to in {**links, **{f"/dev/{name}": to for name, to in devices.items()}}.items():
        if not os.path.lexists(path[1:]):
            os.makedirs(os.path.dirname(path)[1:] or ".", exist_ok=True)
            os.symlink(to, path[1:])
    for path, content in copies.items():
        with open(path[1:], "wb") as file:
            file.write(content)
