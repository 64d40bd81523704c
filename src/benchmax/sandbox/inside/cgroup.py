"""As root: a cgroup for all calls of a server together, so that the kernel itself bounds their memory and processes.

Both kinds are known: version 2 where it has the controllers, and version 1. An ordinary user has no cgroup to make, and
where there is none the limits of each call are watched all the same (see `resource_usage`).
"""

from __future__ import annotations

import math
import os

from . import kernel

PREFIX = "benchmax-"
_ROOT = "/sys/fs/cgroup"
_FILES = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}
"""Where each controller keeps its limit, in version 1 and 2."""


class Group:
    """The folders that make it up: one in version 2, one for each controller in version 1."""

    def __init__(self, limits: dict[str, float]) -> None:
        """OSError with the reason when none can be made."""
        self._entered: list[tuple[str, str]] = []
        try:
            self._enter_second(limits) if _second() else self._enter_first(limits)
        except OSError:
            self.leave()
            raise

    def _enter_second(self, limits: dict[str, float]) -> None:
        above = _ROOT + _own("")
        kernel.write(f"{above}/cgroup.subtree_control", "+memory +pids")
        self._enter(above, {name: _FILES[name][1] for name in _FILES}, limits)

    def _enter_first(self, limits: dict[str, float]) -> None:
        for name, (file, _) in _FILES.items():
            if os.path.isdir(f"{_ROOT}/{name}"):
                self._enter(f"{_ROOT}/{name}{_own(name)}", {name: file}, limits)
        if not any("/pids/" in folder for folder, _ in self._entered):
            raise OSError(2, "there is no controller of processes")

    def _enter(self, above: str, files: dict[str, str], limits: dict[str, float]) -> None:
        _remove_old(above)
        folder = f"{above.rstrip('/')}/{PREFIX}{os.getpid()}"
        os.mkdir(folder)
        self._entered.append((folder, above))
        for name, file in files.items():
            if limits[name] < math.inf:
                kernel.write(f"{folder}/{file}", str(int(limits[name])))
        kernel.write(f"{folder}/cgroup.procs", str(os.getpid()))

    def leave(self) -> None:
        """Everything else in it has ended."""
        for folder, above in self._entered:
            try:
                kernel.write(f"{above}/cgroup.procs", str(os.getpid()))
                os.rmdir(folder)
            except OSError:
                pass
        self._entered.clear()


def _second() -> bool:
    """Whether version 2 has the controllers."""
    try:
        with open(f"{_ROOT}/cgroup.controllers", encoding="utf-8") as file:
            return {"memory", "pids"} <= set(file.read().split())
    except OSError:
        return False


def _own(controller: str) -> str:
    """This process's group, of a controller of version 1 or of version 2."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(","):
                return "" if path == "/" else path
    raise OSError(2, f"this process is in no group of {controller or 'version 2'}")


def _remove_old(above: str) -> None:
    """Groups whose makers were killed."""
    for name in os.listdir(above):
        number = name[len(PREFIX) :]
        if name.startswith(PREFIX) and number.isdigit() and not os.path.exists(f"/proc/{number}"):
            try:
                os.rmdir(f"{above}/{name}")
            except OSError:
                pass
