"""Pid 1 of one call: makes the namespaces and mounts that the call's code will be put into, and then only waits.

It is killed when the call ends, and Linux kills with it whatever is left in its pid namespace. Until then it reaps what
the code's processes leave behind. The code itself is forked elsewhere (see `call_process`), so that pid 1 is always
small.

A private workspace, /tmp and /dev/shm are one tmpfs of one size. A workspace on the disk is not bounded in size here.
With a view (see `Sandbox`) there is a workspace on the disk and nothing else to write.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from . import kernel
from .file_tree import WORKSPACE, make_place

JOINED = {
    "mount": kernel.NEWNS,
    "ipc": kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP,
    "net": kernel.NEWNET,
}  # fmt: skip
"""Namespaces that code joins when it is put into those of a call, by guard."""
_INODE_BYTES = 4096
_MOST_INODES = 65_536
_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
_SMALL_DISK = "size=64k,nr_inodes=64,mode=755"


class Namespaces:
    """The server's side of one call's; after `receive` they are ready, or have failed."""

    def __init__(self, shape: dict[str, Any], guards: frozenset[str], setup: dict[str, Any], pidns: int) -> None:
        self.shape = shape
        self.proc = self.workspace = -1
        self.counted = "proc" in guards
        self.reason = ""
        self.socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if "pid" in guards:
            kernel.unshare(kernel.NEWPID)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _live(far, shape, guards, setup)
        finally:
            if "pid" in guards:
                kernel.setns(pidns, kernel.NEWPID)
        far.close()
        self.pidfd = os.pidfd_open(self.pid)

    def receive(self) -> bool:
        """Read their one message; returns whether they are ready."""
        data, fds = kernel.receive(self.socket, 4096, 2)
        if data == b"ready":
            self.proc, self.workspace = fds
            return True
        self.reason = data.decode("utf-8", "replace") or "it was killed"
        return False

    def kill(self) -> None:
        if self.pidfd < 0:
            return  # it has ended: without pid namespaces, before what was in it
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def is_empty(self) -> bool:
        """Whether only its pid 1 is left; False when that is not known."""
        if self.proc < 0 or not self.counted:
            return False
        return [name for name in os.listdir(self.proc) if name.isdigit()] == ["1"]

    def close(self) -> None:
        """Reap it; it has ended."""
        os.waitpid(self.pid, 0)
        for fd in (self.pidfd, self.proc):
            if fd >= 0:
                os.close(fd)
        self.pidfd = self.proc = -1
        self.socket.close()


def flags_of(shape: dict[str, Any], guards: frozenset[str]) -> int:
    """The namespaces of a call, except its pid namespace."""
    found = sum(flag for name, flag in JOINED.items() if name in guards)
    return found if shape["network"] == "none" else found & ~kernel.NEWNET


def _live(far: socket.socket, shape: dict[str, Any], guards: frozenset[str], setup: dict[str, Any]) -> None:
    """In the new process. Never returns."""
    try:
        line = os.dup2(far.fileno(), 3, inheritable=False)
        kernel.close_from(4)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that Linux reaps its children
        os.setsid()
        kernel.set_visible(True)  # for processes that join; the code inside has another user namespace and sees nothing
        ends = socket.socket(fileno=line)
        try:
            proc, workspace = _make(shape, guards, setup)
            socket.send_fds(ends, [b"ready"], [proc, workspace])
            os.close(proc)
            os.close(workspace)
        except OSError as error:
            ends.send(str(error).encode())
        ends.recv(1)  # until the server is gone, or kills this process
    finally:
        os._exit(0)


def _make(shape: dict[str, Any], guards: frozenset[str], setup: dict[str, Any]) -> tuple[int, int]:
    kernel.unshare(flags_of(shape, guards))
    if "ipc" in guards:
        kernel.call("sethostname", b"sandbox", 7)
    workspace = shape["workspace"] or WORKSPACE
    if "mount" in guards:
        kernel.make_private()
        os.umask(0o022)
        _make_tree(shape, setup) if setup["view"] is None else _make_view(setup["own"], shape["workspace"])
        _make_proc("proc" in guards)
    folder = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return os.open("/proc" if "proc" in guards else "/", folder), os.open(workspace, folder)


def _make_tree(shape: dict[str, Any], setup: dict[str, Any]) -> None:
    """A private disk, and the parts of the common tree that it would cover."""
    own, workspace = setup["own"], shape["workspace"]
    trees = {path: kernel.clone_tree(path) for path in [*setup["shown"], *([workspace] if workspace else [])]}
    if own is not None and not own.startswith("/tmp/"):  # hide the folders of other calls
        kernel.mount("tmpfs", own, "tmpfs", _FLAGS, _SMALL_DISK)
    _make_disk(shape["disk"], private=not workspace)
    for path, tree in trees.items():
        make_place(path, tree)
        kernel.attach_tree(tree, path)


def _make_view(own: str, workspace: str | None) -> None:
    """This call's folder alone, and terminals; no other disk."""
    tree = kernel.clone_tree(workspace) if workspace else -1
    kernel.mount("tmpfs", own, "tmpfs", _FLAGS, _SMALL_DISK)
    if workspace:
        os.makedirs(workspace)
        kernel.attach_tree(tree, workspace)
    kernel.mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "ptmxmode=0666,mode=600")


def _make_disk(size: int, private: bool) -> None:
    inodes = min(_MOST_INODES, max(64, size // _INODE_BYTES))
    kernel.mount("tmpfs", "/tmp", "tmpfs", _FLAGS, f"size={size},nr_inodes={inodes},mode=755")
    places = {"shm": "/dev/shm", "tmp": "/tmp"}
    if private:
        places = {"workspace": WORKSPACE, **places}
    for name in places:
        os.mkdir(f"/tmp/{name}", 0o700)
    for name, target in places.items():  # /tmp last, as it covers the others
        kernel.mount(f"/tmp/{name}", target, None, kernel.MS_BIND)


def _make_proc(own: bool) -> None:
    if own:
        kernel.mount("proc", "/proc", "proc", _FLAGS | kernel.MS_NOEXEC)
    else:  # the machine's is below, and must not be seen
        kernel.mount("tmpfs", "/proc", "tmpfs", _FLAGS, "size=4k,nr_inodes=2,mode=555")
