"""How much memory and CPU time a call's processes take together, as /proc tells.

Limits of the kernel bind one process each, and a cgroup is not everybody's to make. So the server looks a few times a
second: first at what each process has in memory, then, where that sum is over the limit, at what is its own share, as
pages that were forked count for each that has them. Counted are private and shared memory, page tables, and what the
buffers of the call's sockets may hold. Memory that outlives its mapping is not to be had: see `seccomp`.

Not counted: other memory of the kernel (file locks, descriptors, mappings), which the limits on processes and open
files bound; files in the tmpfs, which has a limit of its own. Between two looks a call can take what the machine can
hand out in that time.
"""

from __future__ import annotations

import os
import re

SOCKET_BYTES = 212_992
"""What one socket's buffer holds at most, unless it is told otherwise."""
_CLOCK = os.sysconf("SC_CLK_TCK")
_FIELDS = re.compile(rb"^(RssAnon|RssShmem|VmPTE|VmSwap):\s+(\d+) kB", re.M)
_SHARES = re.compile(rb"^(Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.M)
_TABLES = re.compile(rb"^(VmPTE):\s+(\d+) kB", re.M)
_READ_BYTES = 16_384


class Usage:
    """One call's, look by look."""

    def __init__(self, proc: int, root: int | None, limit: int, own_network: bool) -> None:
        self._proc = proc
        self._root = root
        self._limit = limit
        self._own_network = own_network
        self.memory = 0
        """The most seen so far, in bytes."""
        self.cpu = 0.0
        self.processes = 0

    def look(self) -> None:
        """In a /proc of the call's own, at all but pid 1; else at a process and its descendants."""
        if self._root is None:
            pids = [name for name in os.listdir(self._proc) if name.isdigit() and name != "1"]
        else:
            pids = [str(pid) for pid in _family(self._proc, self._root)]
        self.processes = len(pids)
        self.cpu = max(self.cpu, sum(map(self._ticks, pids)) / _CLOCK)
        resident = sum(sum(self._kilobytes(pid, "status", _FIELDS)) for pid in pids) * 1024
        if resident > self._limit:
            resident = self._share(pids)
        self.memory = max(self.memory, resident + self._sockets(pids))

    def _read(self, name: str) -> bytes:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            return os.read(fd, _READ_BYTES)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def _kilobytes(self, pid: str, file: str, pattern: re.Pattern[bytes]) -> list[int]:
        return [int(size) for _, size in pattern.findall(self._read(f"{pid}/{file}"))]

    def _ticks(self, pid: str) -> int:
        """CPU time, that of children it has waited for included."""
        return sum(map(int, self._read(f"{pid}/stat").rpartition(b")")[2].split()[11:15]))

    def _share(self, pids: list[str]) -> int:
        """Memory with each shared page counted once; of a process that hides itself, all it has."""
        total = 0
        for pid in pids:
            own = self._kilobytes(pid, "smaps_rollup", _SHARES)
            total += sum([*own, *self._kilobytes(pid, "status", _TABLES if own else _FIELDS)])
        return total * 1024

    def _sockets(self, pids: list[str]) -> int:
        if not self._own_network or not pids:
            return 0
        found = re.search(rb"sockets: used (\d+)", self._read(f"{pids[0]}/net/sockstat"))
        return int(found[1]) * SOCKET_BYTES if found else 0


def children(proc: int, pid: int) -> list[int]:
    try:
        fd = os.open(f"{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return []
    with open(fd, encoding="utf-8") as file:
        return [int(each) for each in file.read().split()]


def _family(proc: int, pid: int) -> list[int]:
    found = [pid]
    for each in found:
        found += children(proc, each)
    return found
