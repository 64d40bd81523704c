"""How much memory, CPU time and disk a call uses with all its processes, read from /proc and its folder.

The kernel's limits apply to single processes, and not every user may make a cgroup. So the server measures a few times
a second: first what each process has in memory, then, where that sum is over the limit, each one's own share, as forked
pages count for every process that has them. Counted are private and shared memory, page tables, and what the buffers of
the call's sockets may hold. `seccomp` refuses memory that outlives its mapping.

Not counted: other memory of the kernel (file locks, descriptors, mappings), which the limits on processes and open
files bound; files in the tmpfs, which has a limit of its own; on the disk, files that have no name any more. Between
two measurements a call can use what the machine can give in that time. Idle calls are measured less often.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Generator, Iterator

from . import call_tags

SOCKET_BYTES = 212_992
"""The default limit of one socket's buffer."""
_CLOCK = os.sysconf("SC_CLK_TCK")
_FIELDS = re.compile(rb"^(RssAnon|RssShmem|VmPTE|VmSwap):\s+(\d+) kB", re.M)
_SHARES = re.compile(rb"^(Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.M)
_TABLES = re.compile(rb"^(VmPTE):\s+(\d+) kB", re.M)
_READ_BYTES = 16_384
LOOK_SECONDS, IDLE_SECONDS = 0.05, 0.5
"""Between two measurements of a busy call, and of an idle one."""
_ENTRIES = 4_000
"""Of a folder, read at once: everything else waits meanwhile."""
_ENTRY_BYTES = 4_096
_MOST_ANCESTORS = 1_000
_MOST_DEPTH = 200
"""Of nested folders; deeper nesting counts as over the limit, as it may hide files."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Usage:
    """What one call uses."""

    def __init__(self, proc: int, folder: int, limits: dict[str, float], own_network: bool) -> None:
        self._proc, self._limits, self._own_network = proc, limits, own_network
        self._folder = folder
        """A descriptor of the folder it writes in, where its size is measured; else -1."""
        self._walk: Generator[float | None] | None = None
        self._walked_at = -1.0
        self._pause = LOOK_SECONDS
        self.next = time.monotonic() + LOOK_SECONDS
        """When to measure again."""
        self.memory = 0
        """The most seen so far, in bytes."""
        self.cpu = 0.0
        self.processes = 0
        self.disk = 0.0

    def close(self) -> None:
        if self._walk is not None:
            self._walk.close()
        if self._folder >= 0:
            os.close(self._folder)

    def look(self, now: float, pids: list[str] | None = None) -> None:
        """Measure these processes; in a /proc of the call's own, all but pid 1."""
        if pids is None:
            pids = [name for name in os.listdir(self._proc) if name.isdigit() and name != "1"]
        before, self.processes = self.cpu, len(pids)
        self.cpu = max(self.cpu, sum(map(self._ticks, pids)) / _CLOCK)
        if self.cpu > before or not self.memory:  # memory is taken with CPU time
            self._look_at_memory(pids)
        self._look_at_disk()
        busy = self.cpu > before or self._walk is not None
        self._pause = LOOK_SECONDS if busy else min(IDLE_SECONDS, 2 * self._pause)
        self.next = now + self._pause

    def over(self) -> str | None:
        """The limit that is exceeded, if one is."""
        for name in ("memory", "cpu", "processes", "disk"):
            if getattr(self, name) > self._limits["folder" if name == "disk" else name]:
                return name
        return None

    def _look_at_memory(self, pids: list[str]) -> None:
        resident = sum(sum(self._kilobytes(pid, "status", _FIELDS)) for pid in pids) * 1024
        if resident > self._limits["memory"]:
            resident = self._share(pids)
        self.memory = max(self.memory, resident + self._sockets(pids))

    def _look_at_disk(self) -> None:
        """Measure a part of its folder, unless the call has been idle since all of it was measured."""
        if self._folder < 0 or (self._walk is None and self._walked_at == self.cpu):
            return
        if self._walk is None:
            self._walk, self._walked_at = _taken(self._folder), self.cpu
        size = next(self._walk, 0)
        if size is not None:
            self.disk, self._walk = size, None

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
        """CPU time, including that of children it has waited for."""
        return sum(map(int, self._read(f"{pid}/stat").rpartition(b")")[2].split()[11:15]))

    def _share(self, pids: list[str]) -> int:
        """Memory with each shared page counted once; all that a process has, where its shares cannot be read."""
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


def descends(proc: int, pid: int, ancestor: int) -> bool:
    """Whether a process descends from another."""
    for _ in range(_MOST_ANCESTORS):
        if pid in (0, 1, ancestor):
            break
        pid = _parent(proc, pid)
    return pid == ancestor


def _parent(proc: int, pid: int) -> int:
    try:
        with open(os.open(f"{pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def tagged(proc: int) -> dict[int, list[str]]:
    """The processes of each tag, where there are no namespaces."""
    found: dict[int, list[str]] = {}
    for name in filter(str.isdigit, os.listdir(proc)):
        if (tag := call_tags.tag_of(int(name))) is not None:
            found.setdefault(tag, []).append(name)
    return found


def _taken(folder: int) -> Generator[float | None]:
    """Bytes of all files in a folder, links not followed; None after every few thousand of them."""
    size, seen, stack = 0, 0, [_opened(".", folder)]
    try:
        while stack:
            here, entries = stack[-1]
            if (entry := next(entries, None)) is None:
                os.close(stack.pop()[0])
                continue
            if len(stack) > _MOST_DEPTH:
                break
            size += _size(entry)
            if entry.is_dir(follow_symlinks=False):
                stack.append(_opened(entry.name, here))
            if (seen := seen + 1) % _ENTRIES == 0:
                yield None
        yield math.inf if stack else size
    finally:
        for here, _ in stack:
            os.close(here)


def _opened(name: str, above: int) -> tuple[int, Iterator[os.DirEntry[str]]]:
    """What cannot be opened is empty: it is gone, or not a folder any more."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=above)
    except OSError:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), iter(())
    return fd, os.scandir(fd)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return max(_ENTRY_BYTES, entry.stat(follow_symlinks=False).st_blocks * 512)
    except OSError:
        return 0
