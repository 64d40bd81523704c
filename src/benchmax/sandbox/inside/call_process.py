"""From fork to the first line of a call's own code: it joins its namespaces, sets up each guard, and writes its files.

    join the call's namespaces, or be tagged where there are none → close what was open → a user namespace of its own →
    no new privileges → Landlock → seccomp → no capabilities → wait for what to run → write its files → limits → run

Everything before the wait is the same for calls of one shape, and may happen before a call comes. What to run arrives
in a file that only this process reads. Its parent, from which later calls are forked, never sees the code, arguments,
variables or files of any call.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import signal
import socket
from typing import Any, BinaryIO

from . import call_tags, kernel, landlock, script, seccomp
from .file_tree import DEVICES, USER, WORKSPACE
from .namespaces import flags_of

_HEAD_BYTES = 8
_SPARE = 64
"""Descriptors are moved above this number while they are put in order."""
_NOT_RUN = 127
_CHUNK_BYTES = 1 << 20
_LIMITS_BYTES = 4096
_SMALL = {
    resource.RLIMIT_CORE: 0,
    getattr(resource, "RLIMIT_MSGQUEUE", resource.RLIMIT_CORE): 0,
    resource.RLIMIT_MEMLOCK: 64 * 1024,
    getattr(resource, "RLIMIT_SIGPENDING", resource.RLIMIT_CORE): 1024,
}
"""Limits that are the same for every call."""
NAMESPACES, LINE = 0, 1
"""Positions among the descriptors of an order: pid 1 of the namespaces (as a pidfd), and a socket to the server."""
_OWN_LINE = 3
MOST_FDS = 16
TERMINALS = ("/dev/ptmx", "/dev/pts", "/dev/tty")


def start(order: dict[str, Any], fds: list[int], pidns: int) -> tuple[int, dict[str, Any] | None]:
    """Fork a process into its namespaces and let it run; returns its pid. `order` is the server's account of the call.

    In a process that is to run what its parent has loaded, this returns too: 0, and what to run.
    """
    inside = order["namespaces"] and "pid" in order["guards"]
    if inside:
        kernel.setns(fds[NAMESPACES], kernel.NEWPID)
    pid, parent = -1, os.getpid()
    try:
        pid = os.fork()
    finally:
        if inside and pid != 0:
            kernel.setns(pidns, kernel.NEWPID)
    return pid, _begin(order, fds, parent) if pid == 0 else None


def _begin(order: dict[str, Any], fds: list[int], parent: int) -> dict[str, Any]:
    """In the new process. Returns only what a loader has to run."""
    line = socket.socket(fileno=fds[LINE])
    try:
        _reset_signals()
        os.setsid()
        guards = frozenset(order["guards"])
        kernel.set_visible(True)
        self_proc = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        if order["namespaces"]:
            kernel.setns(fds[NAMESPACES], flags_of(order["shape"], guards))
        else:
            call_tags.tag(order["tag"])
        workspace, alone = order["shape"]["workspace"] or WORKSPACE, "descriptors" in guards
        ruleset = [order["ports_ruleset"]] if order["ports_ruleset"] >= 0 else []
        _arrange([line.detach(), self_proc, *ruleset], _OWN_LINE, alone)
        line = socket.socket(fileno=_OWN_LINE)
        _confine(order, guards, workspace, line)
        if not order["namespaces"]:
            kernel.end_with_parent()
            if os.getppid() != parent:
                os._exit(_NOT_RUN)
        given, (payload, *own) = _wait(line)
        task = _unpack(payload, workspace)
        _arrange([*own, line.detach()], 0, alone, inherited=len(own))
        line = socket.socket(fileno=len(own))
        _limit(given, counted="user" in guards)
        os.chdir(task["cwd"] or workspace)
        line.close()
    except BaseException as error:
        try:
            line.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        finally:  # a process that returned from here would be a second server
            os._exit(_NOT_RUN)
    if order["fork"] != "loaded":
        _run(task)
    return task


def _wait(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The limits of the call that is to run here; what to run, and its descriptors 0, 1, 2, …"""
    data, fds, _, _ = socket.recv_fds(line, _LIMITS_BYTES, MOST_FDS)
    if not data:
        os._exit(_NOT_RUN)  # the server is gone
    return json.loads(data), list(fds)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _unpack(payload: int, workspace: str) -> dict[str, Any]:
    """Returns what to run, and writes the files that come with it."""
    with open(payload, "rb") as file:
        task = json.loads(file.read(int.from_bytes(file.read(_HEAD_BYTES), "little")))
        for name, size in task["files"]:
            _write_file(os.path.join(workspace, name), file, size)
    return dict(task)


def _write_file(path: str, source: BinaryIO, size: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(fd, "wb") as file:
        while size > 0:
            file.write(part := source.read(min(size, _CHUNK_BYTES)))
            size -= len(part)


def _arrange(wanted: list[int], first: int, alone: bool, inherited: int = 0) -> None:
    """Put these descriptors at `first` and after; `alone` closes all beyond. Programs inherit the first `inherited`."""
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _SPARE) for fd in wanted]
    for at, fd in enumerate(spare):
        os.dup2(fd, first + at, inheritable=at < inherited)
    if alone:
        kernel.close_from(first + len(wanted))


def _confine(order: dict[str, Any], guards: frozenset[str], workspace: str, line: socket.socket) -> None:
    self_proc = line.fileno() + 1
    _offer_self(self_proc)
    if "user" in guards:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEWUSER)
        kernel.map_ids(self_proc, USER, user, group)
    os.close(self_proc)
    if "no_new_privs" in guards:
        kernel.no_new_privileges()
    if order["ports_ruleset"] >= 0:
        landlock.add(self_proc + 1)
        os.close(self_proc + 1)
    lock_files(order, guards, workspace)
    if "seccomp" in guards:
        _filter_calls(line, order["network"])
    if "capabilities" in guards:
        kernel.drop_capabilities(order["kept"])
    kernel.set_visible(True)  # for the server's look at its memory; to itself it always is


def lock_files(order: dict[str, Any], guards: frozenset[str], workspace: str) -> None:
    write = [workspace, *order["write"], *(f"/dev/{name}" for name in DEVICES)]
    landlock.confine(guards, order["read"], order["listed"], write, order["network"] != "host", order["port"])


def _filter_calls(line: socket.socket, network: str) -> None:
    """Install the filter; the server receives a descriptor that reports what it refuses."""
    listener = seccomp.install(network)
    if listener >= 0:
        socket.send_fds(line, [b'{"listener": true}'], [listener])
        os.close(listener)


def _offer_self(self_proc: int) -> None:
    """When the machine runs out of memory, the kernel ends this process first."""
    try:
        kernel.write("oom_score_adj", "1000", self_proc)
    except OSError:
        pass


def _limit(given: dict[str, Any], counted: bool) -> None:
    """`counted`: the kernel counts this call's processes alone; else the server counts them."""
    bounds = dict(_SMALL)
    bounds[resource.RLIMIT_NOFILE] = given["open_files"]
    if counted:
        bounds[resource.RLIMIT_NPROC] = given["processes"]
    if given["file"] < math.inf:
        bounds[resource.RLIMIT_FSIZE] = given["file"]
    if given["cpu"] < math.inf:
        bounds[resource.RLIMIT_CPU] = int(given["cpu"]) + 1
    if given["data"]:
        bounds[resource.RLIMIT_DATA] = given["data"]
    for kind, most in bounds.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _run(task: dict[str, Any]) -> None:
    """Never returns."""
    name = script.NAME if task["code"] is not None else task["argv"][0]
    try:
        if task["code"] is not None:
            script.run(task["code"], task["argv"], task["env"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and other programs do not
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(name, task["argv"], task["env"])
    except OSError as error:
        os.write(2, f"cannot run {name!r}: {error.strerror}\n".encode())
    except ValueError as error:  # an argument or a variable that no program can be given
        os.write(2, f"cannot run {name!r}: {error}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(_NOT_RUN)
