"""A process that has imported packages, and forks itself for each call that wants them.

It is a child of the server, and hears only of it. Packages are imported before any call comes, in the tree that calls
see. All forks have one memory layout, and numbers that a package drew when it was imported are the same in all.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Any

from . import body, kernel

MOST_FDS = 16
PACKET_BYTES = 200_000


def live(line: socket.socket, modules: Sequence[str], warm_up: str) -> None:
    """Never returns."""
    try:
        kernel.set_visible(False)
        line = socket.socket(fileno=os.dup2(line.detach(), 3, inheritable=False))
        kernel.close_from(4)
        pidns = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        _send(line, {"ready": _import(modules, warm_up), "data": _data_bytes()})
        _serve(line, pidns)
    finally:
        os._exit(0)


def _import(modules: Sequence[str], warm_up: str) -> str | None:
    """Why a package cannot be imported; None when all are."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            return f"{name} cannot be imported: {type(error).__name__}: {error}"
    try:
        exec(compile(warm_up, "warm_up", "exec"), {"__name__": "warm_up"})  # noqa: S102 - the user's own
    except BaseException as error:
        return f"the warm-up fails: {type(error).__name__}: {error}"
    settle()
    kernel.join_pages()
    return None


def settle() -> None:
    """The collector of a fork need not touch what was here before, which would copy it."""
    gc.disable()
    gc.collect()
    gc.freeze()


def _data_bytes() -> int:
    """Private memory that is mapped already, and counts against the limit of every fork."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        sizes = [line.split()[1] for line in file if line.startswith("VmData:")]
    return int(sizes[0]) * 1024


def _serve(line: socket.socket, pidns: int) -> None:
    running: dict[int, int] = {}  # pid: call
    wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake[1])
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        readable, _, _ = select.select([line.fileno(), wake[0]], [], [])
        if wake[0] in readable:
            os.read(wake[0], 4096)
            _reap(line, running)
        if line.fileno() in readable:
            data, fds, _, _ = socket.recv_fds(line, PACKET_BYTES, MOST_FDS)
            if not data:
                return
            order = json.loads(data)
            try:
                running[body.start(order, fds, pidns)] = order["call"]
            except OSError as error:
                _send(line, {"ended": order["call"], "status": None, "failed": str(error)})
            for fd in fds:
                os.close(fd)


def _reap(line: socket.socket, running: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            _send(line, {"ended": running.pop(pid), "status": os.waitstatus_to_exitcode(status)})


def _send(line: socket.socket, message: dict[str, Any]) -> None:
    line.send(json.dumps(message).encode())
