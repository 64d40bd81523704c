"""Starts the fork server with as many guards as this machine can keep, and ends it when the client is gone.

    python launcher.py FD       FD: a socket to the client, which first sends a file that says what to set up
    python launcher.py forker   in the tree: a process to fork calls from, see `zygote`

For each set of guards, the strongest first, a child tries to enter its namespaces and to make the file tree; the first
that can, forks the server and waits for it; each ends when the one above it does. As root, the tree is made as root,
which may go everywhere, and the server then becomes a user that owns nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any

_PACKAGE = "benchmax_sandbox"


def _load() -> Any:
    """The package this file lies in, under a name of its own: benchmax itself need not be installed here."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)
    names = (
        "kernel",
        "cgroup",
        "guards",
        "landlock",
        "seccomp",
        "file_tree",
        "fork_server",
        "resource_usage",
        "zygote",
    )
    for name in names:
        setattr(package, name, importlib.import_module(f"{_PACKAGE}.{name}"))
    return package


inside = _load()


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    _, fds, _, _ = socket.recv_fds(sock, 1, 1)
    if not fds:
        return
    with open(fds[0], encoding="utf-8") as file:
        setup = json.load(file)
    inside.kernel.adopt_orphans()
    wanted, lacks = _wanted(frozenset(setup["guards"]))
    group = _entered(setup["group"], lacks) if "cgroup" in wanted else None
    wanted -= {"cgroup"} if group is None else set()
    try:
        _start(sock, setup, wanted, lacks)
    finally:
        if group is not None:
            group.leave()


def _entered(limits: dict[str, float], lacks: dict[str, str]) -> Any:
    """A cgroup, or None where none can be made."""
    try:
        return inside.cgroup.Group(limits)
    except OSError as error:
        lacks["cgroup"] = f"no cgroup can be made here: {error.strerror or error}"
        return None


def _start(sock: socket.socket, setup: dict[str, Any], wanted: frozenset[str], lacks: dict[str, str]) -> None:
    reason, why = "", dict[str, str]()
    for guards in inside.guards.fallbacks(wanted):
        guards = inside.guards.possible(guards, os.geteuid() == 0)
        if setup["view"] is not None and "mount" not in guards:
            guards -= {"uid"}  # the named paths are in folders that only root may enter
        why.update(
            {name: why.get(name, reason) for name in wanted - guards}
        )  # the reason of the attempt that still had it
        server, reason = _try(sock, setup, guards, {**lacks, **{name: why[name] for name in wanted - guards}})
        if server:
            _wait(sock, server, setup["scrap"])
            return
    sock.send(json.dumps({"ready": reason}).encode())


def _wanted(asked: frozenset[str]) -> tuple[frozenset[str], dict[str, str]]:
    """The guards that were asked for, without those that the kernel lacks or that only root can have, and why."""
    lacks = {}
    if os.geteuid() != 0:
        asked -= {"uid", "cgroup"}
    version = inside.landlock.version()
    for name, least in inside.landlock.NEEDS.items():
        if version < least:
            lacks[name] = f"Landlock {least} is needed, and the kernel has {version or 'none'}"
    if not inside.seccomp.available():
        lacks["seccomp"] = "the kernel has no seccomp filters, or this machine is neither x86_64 nor aarch64"
    return asked - lacks.keys(), {name: why for name, why in lacks.items() if name in asked}


def _try(sock: socket.socket, setup: dict[str, Any], guards: frozenset[str], lacks: dict[str, str]) -> tuple[int, str]:
    """The server's pid, as seen from here, or 0 and why there is none."""
    near, far = socket.socketpair()
    if os.fork() == 0:
        near.close()
        _enter(sock, far, setup, guards, lacks)
    far.close()
    with near:
        said = b"".join(iter(lambda: near.recv(4096), b"")).decode()
    news: dict[str, Any] = {}
    for line in said.splitlines():
        news.update(json.loads(line))
    if "reason" not in news and "pid" in news:
        return int(news["pid"]), ""
    _reap_all()
    return 0, str(news.get("reason", "it was killed"))


def _tell(far: socket.socket, **news: Any) -> None:
    far.send(json.dumps(news).encode() + b"\n")


def _reap_all() -> None:
    try:
        while os.wait():
            pass
    except ChildProcessError:
        pass


def _end_all() -> None:
    """Kill and reap every process below this one: without namespaces, there may be many."""
    proc = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)
    while found := inside.resource_usage.children(proc, os.getpid()):
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        for pid in found:
            os.waitpid(pid, 0)
    _reap_all()


def _enter(sock: socket.socket, far: socket.socket, setup: Any, guards: frozenset[str], lacks: Any) -> None:
    """In a child: everything up to the server's own process. Never returns."""
    try:
        _enter_namespaces(setup, guards)
        inside.kernel.end_with_parent()  # here, for a change of user undoes it
        if (pid := os.fork()) == 0:
            _serve(sock, far, setup, guards, lacks)
        _tell(far, pid=pid)
    except BaseException as error:
        _tell(far, reason=f"{type(error).__name__}: {error}")
    sock.close()
    far.close()
    _reap_all()
    os._exit(0)


def _enter_namespaces(setup: dict[str, Any], guards: frozenset[str]) -> None:
    kernel, root = inside.kernel, os.geteuid() == 0
    if root and "mount" in guards:
        kernel.unshare(kernel.NEWNS)
        _make_tree(setup)
    if root and "uid" in guards:
        _become_nobody(setup["as_user"])
    user, group = os.geteuid(), os.getegid()
    flags = {"user": kernel.NEWUSER, "mount": kernel.NEWNS, "pid": kernel.NEWPID}
    if setup["network"] == "none":
        flags["net"] = kernel.NEWNET
    setup["user"] = user
    if wanted := sum(flag for name, flag in flags.items() if name in guards):
        kernel.unshare(wanted)  # inside a sandbox it is refused even without flags
    if "user" in guards:
        kernel.set_visible(True)
        proc = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        kernel.map_ids(proc, 0, user, group)
        os.close(proc)
    if "mount" in guards:
        if not root:
            _make_tree(setup)
        kernel.make_private()


def _make_tree(setup: dict[str, Any]) -> None:
    inside.kernel.make_private()
    hidden = setup["view"]["hidden"] if setup["view"] is not None else ()
    inside.file_tree.build(setup["read"], setup["own"], hidden)


def _become_nobody(wanted: int | None) -> None:
    for user in (wanted or inside.guards.FIRST_UID + os.getppid(), inside.guards.NOBODY):
        try:
            inside.kernel.become(user)
            return
        except OSError:  # a container maps few numbers
            continue
    raise OSError(22, "no user number is free to become")


def _serve(sock: socket.socket, far: socket.socket, setup: Any, guards: frozenset[str], lacks: Any) -> None:
    """As pid 1 of the namespace of all calls. Never returns."""
    try:
        kernel = inside.kernel
        kernel.end_with_parent()
        if "proc" in guards:
            kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        kernel.set_visible(False)
        server = inside.fork_server.Server(sock, setup, guards, lacks)
        server.check_namespaces()
    except BaseException as error:
        _tell(far, reason=f"{type(error).__name__}: {error}")
        os._exit(0)
    far.close()
    try:
        server.run()
    finally:
        os._exit(0)


def _wait(sock: socket.socket, server: int, scrap: str | None) -> None:
    """Wait until the server or the client has ended; the server may be stuck in a package that it imports."""
    pidfd = os.pidfd_open(server)
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP | select.POLLHUP)
    poll.register(pidfd, select.POLLIN)
    gone = [fd for fd, _ in poll.poll()]
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    _end_all()
    if scrap is not None and sock.fileno() in gone:
        shutil.rmtree(scrap, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1] == "forker":
        if not getattr(sys.flags, "safe_path", False):
            sys.path.pop(0)  # this file's folder
        inside.zygote.main()
    else:
        main()
