"""A process that has imported packages, and forks itself for each call that wants them.

It is a child of the server, and reads only what the server sends. Packages are imported before any call comes, in the
file tree that calls see. All forks have one memory layout, and random numbers drawn at import are the same in all.

It is a fork of the server (`live`), or another interpreter that is started in the same tree (`main`) and has a *loader*
decide what to import and how a call is run: a file with

    prepare(plan)    imports; returns {"reason": why it cannot be forked, or None, …}, or {"again": another plan} to
                     restart with, as nothing can be unimported
    run(plan, task)  in a fork: runs the call's `argv`, and returns when it is to end
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from . import call_process, kernel

_LINE_FD, _PLAN_FD, _RULESET_FD, _SPARE = 3, 4, 5, 64
_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")


class Zygote:
    """The server's end of one."""

    def __init__(self, common: dict[str, Any], setup: dict[str, Any], plan: dict[str, Any] | None, alone: bool) -> None:
        """`alone`: it has no file tree of its own, so that what it imports must be confined."""
        self.socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.loads = plan is not None
        self.prepared = False
        self.pid = os.fork()
        if self.pid == 0:
            try:
                kernel.end_with_parent()
                far = socket.socket(fileno=fcntl.fcntl(far.detach(), fcntl.F_DUPFD_CLOEXEC, _SPARE))
                common = _kept_open(common)
                if plan is not None:
                    forker, own = setup["forker"], setup["own"] if alone else None
                    _execute(far, {"common": common, "plan": plan, "loader": forker["loader"], "own": own}, forker)
                live(far, common, setup["modules"], setup["warm_up"])
            finally:
                os._exit(127)
        far.close()

    def fork(self, order: dict[str, Any], fds: list[int]) -> None:
        socket.send_fds(self.socket, [json.dumps(order).encode()], fds)

    def receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        """Its next message, or None when it is gone, and descriptors."""
        data, fds = kernel.receive(self.socket, kernel.PACKET_BYTES, 1)
        return json.loads(data) if data else None, fds

    def close(self) -> None:
        self.socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _execute(far: socket.socket, given: dict[str, Any], forker: dict[str, Any]) -> None:
    line, plan = (fcntl.fcntl(fd, fcntl.F_DUPFD, _SPARE) for fd in (far.fileno(), _written(given)))
    os.dup2(line, _LINE_FD, inheritable=True)
    os.dup2(plan, _PLAN_FD, inheritable=True)
    if given["common"]["ports_ruleset"] < 0:
        kernel.close_from(_PLAN_FD + 1)
    else:
        os.set_inheritable(_RULESET_FD, True)
        kernel.close_from(_RULESET_FD + 1)
    os.chdir(forker["folder"])
    os.execve(forker["python"], [forker["python"], "-u", _LAUNCHER, "forker"], forker["env"])


def _kept_open(common: dict[str, Any]) -> dict[str, Any]:
    """The ruleset of closed ports, at a number of its own."""
    if common["ports_ruleset"] < 0:
        return common
    os.dup2(common["ports_ruleset"], _RULESET_FD, inheritable=False)
    return {**common, "ports_ruleset": _RULESET_FD}


def _written(message: dict[str, Any]) -> int:
    """A message as a file in memory, for one that may be longer than a packet."""
    return kernel.memory_file(json.dumps(message).encode())


# In the process itself


def live(line: socket.socket, common: dict[str, Any], modules: Sequence[str], warm_up: str) -> None:
    """Never returns."""
    try:
        kernel.set_visible(False)
        line = socket.socket(fileno=os.dup2(line.detach(), _LINE_FD, inheritable=False))
        os.closerange(_LINE_FD + 1, _RULESET_FD)
        kernel.close_from(_RULESET_FD + (common["ports_ruleset"] >= 0))
        _send(line, {"ready": _import(modules, warm_up), "data": data_bytes()})
        _serve(line, common)
    finally:
        os._exit(0)


def main() -> None:
    """Of an interpreter of its own. Returns in forks, when they are done."""
    line = socket.socket(fileno=_LINE_FD)
    line.set_inheritable(False)
    kernel.set_visible(False)
    with open(_PLAN_FD, encoding="utf-8") as file:
        given = json.load(file)
    if given["common"]["ports_ruleset"] >= 0:
        os.set_inheritable(_RULESET_FD, False)
    loader = _load(given["loader"])
    if given["own"] is not None:
        _confine(given["common"], given["own"])
    report = loader.prepare(given["plan"])
    settle()
    _send(line, {"ready": None, "data": data_bytes()}, [sent := _written(report)])
    os.close(sent)
    task = _serve(line, given["common"])
    if task is not None:
        gc.enable()
        os.environ.clear()
        os.environ.update(task["env"])
        loader.run(given["plan"], task)


def _confine(common: dict[str, Any], own: str) -> None:
    """Like each of its forks, but with access to the folders of all of them."""
    guards = frozenset(common["guards"])
    if "no_new_privs" in guards:
        kernel.no_new_privileges()
    call_process.lock_files({**common, "network": "host", "port": None}, guards, own)
    if "capabilities" in guards:
        kernel.drop_capabilities(common["kept"])


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("_benchmax_loader", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _import(modules: Sequence[str], warm_up: str) -> str | None:
    """Why a package cannot be imported; None when all are."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            return f"{name} cannot be imported: {type(error).__name__}: {error}"
    try:
        exec(compile(warm_up, "warm_up", "exec"), {"__name__": "warm_up"})  # noqa: S102 - the user's own
        sys.stdout.flush()  # else every fork would print it again
        sys.stderr.flush()
    except BaseException as error:
        return f"the warm-up fails: {type(error).__name__}: {error}"
    settle()
    kernel.join_pages()
    return None


def settle() -> None:
    """Keep the garbage collector of forks from touching, and so copying, what is here."""
    gc.disable()
    gc.collect()
    gc.freeze()


def data_bytes() -> int:
    """Private memory that is mapped already, and counts against the limit of every fork."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        sizes = [line.split()[1] for line in file if line.startswith("VmData:")]
    return int(sizes[0]) * 1024


def _serve(line: socket.socket, common: dict[str, Any]) -> dict[str, Any] | None:
    """Fork until the server is gone. In a fork that a loader runs: what to run."""
    running: dict[int, int] = {}  # pid: call
    pidns = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake[1])
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        readable, _, _ = select.select([line.fileno(), wake[0]], [], [])
        if wake[0] in readable:
            os.read(wake[0], 4096)
            _reap(line, running)
        if line.fileno() in readable:
            data, fds, _, _ = socket.recv_fds(line, kernel.PACKET_BYTES, call_process.MOST_FDS)
            if not data:
                os._exit(0)
            order = {**common, **json.loads(data)}
            pid = _fork(line, order, fds, pidns, running)
            if not isinstance(pid, int):
                return pid
            for fd in fds:
                os.close(fd)


def _fork(
    line: socket.socket, order: dict[str, Any], fds: list[int], pidns: int, running: dict[int, int]
) -> int | dict[str, Any]:
    try:
        pid, task = call_process.start(order, fds, pidns)
    except OSError as error:
        _send(line, {"ended": order["call"], "status": None, "failed": str(error)})
        return -1
    if task is not None:
        line.detach()  # its number is another descriptor by now
        return task
    running[pid] = order["call"]
    if order["reports_pid"]:
        pidfd = os.pidfd_open(pid)
        _send(line, {"forked": order["call"], "pid": pid}, [pidfd])
        os.close(pidfd)
    return pid


def _reap(line: socket.socket, running: dict[int, int]) -> None:
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        if ended.si_pid in running:
            kernel.kill_group(ended.si_pid)  # before its number is free for others
        status = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
        if ended.si_pid in running:
            _send(line, {"ended": running.pop(ended.si_pid), "status": status})


def _send(line: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    socket.send_fds(line, [json.dumps(message).encode()], fds)
