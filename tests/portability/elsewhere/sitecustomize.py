"""A Python that has none of Linux: imported at the start of a process that has this folder on its path, and of all
that it starts.

Calls that only Linux has are gone, /proc and /sys do not exist, and the platform has another name.
"""

import builtins
import ctypes
import io
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

GONE = {
    os: (
        "O_PATH", "O_TMPFILE", "eventfd", "fdatasync", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise",
        "sched_getaffinity", "sched_setaffinity", "setns", "splice", "unshare", "waitid",
    ),
    resource: ("prlimit",),
    select: ("POLLRDHUP", "epoll"),
    signal: ("pidfd_send_signal",),
    socket: ("SO_PEERCRED",),
}  # fmt: skip
for module, names in GONE.items():
    for name in names:
        vars(module).pop(name, None)


def _hides(path: object) -> bool:
    try:
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    except (TypeError, ValueError):
        return False
    return text.startswith(("/proc", "/sys/"))


def _without_proc(function):
    def call(path, *args, **kwargs):
        asks = sys._getframe(1).f_globals.get("__name__", "")
        if _hides(path) and not asks.startswith("psutil"):  # which has other ways on other systems
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **kwargs)

    return call


builtins.open = io.open = _without_proc(io.open)
for name in ("listdir", "lstat", "open", "readlink", "scandir", "stat"):
    setattr(os, name, _without_proc(getattr(os, name)))


class Library(ctypes.CDLL):
    def __getattr__(self, name: str):
        if name in ("prctl", "syscall"):
            raise AttributeError(name)
        return super().__getattr__(name)


class Elsewhere(ModuleType):
    """`sys` of another platform, for our own modules: other packages would look for files they have not installed."""

    platform = "darwin"

    def __getattr__(self, name: str):
        return getattr(sys, name)


ctypes.CDLL = Library
_elsewhere = Elsewhere("sys")
_import = builtins.__import__


def _import_elsewhere(name, globals=None, locals=None, fromlist=(), level=0):
    if name == "sys" and globals and str(globals.get("__name__")).split(".")[0] in ("benchmax", "__main__"):
        return _elsewhere
    return _import(name, globals, locals, fromlist, level)


builtins.__import__ = _import_elsewhere

_start = subprocess.Popen.__init__


def _start_elsewhere(self, *args, env=None, **kwargs):
    if env is not None:
        env = {**env, "PYTHONPATH": str(Path(__file__).parent)}
    _start(self, *args, env=env, **kwargs)


subprocess.Popen.__init__ = _start_elsewhere
