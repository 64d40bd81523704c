"""A call to a sandbox, its limits, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from benchmax import limits
from benchmax.errors import UsageError

Network = Literal["none", "host"]
EndedBy = Literal["wall", "cpu", "memory", "processes", "disk", "output", "killed"]
"""The limit that ended a call, or `killed` when its caller gave it up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may use, with all the processes it starts. None is no limit."""

    wall_seconds: float | None = limits.SANDBOX_WALL_SECONDS
    cpu_seconds: float | None = limits.SANDBOX_CPU_SECONDS
    memory_bytes: int | None = limits.SANDBOX_MEMORY_BYTES
    processes: int = limits.SANDBOX_PROCESSES
    """Threads count too."""
    open_files: int = limits.SANDBOX_OPEN_FILES
    """Of each process."""
    disk_bytes: int = limits.SANDBOX_DISK_BYTES
    """Of the workspace, /tmp and /dev/shm together, and the largest file."""
    folder_bytes: int | None = None
    """The same for a `workspace` on the disk, which is measured at intervals like memory."""
    output_bytes: int = limits.SANDBOX_OUTPUT_BYTES
    """Of stdout and stderr together."""
    network: Network = "none"
    port: int | None = None
    """With network `none`, a TCP port of the host on which it can be called; it still connects to nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """Python source, or a program: `argv` names it, or is what the source finds in `sys.argv[1:]`.

    `forked`: the sandbox's forker runs it, and `argv` is for its loader.
    """

    code: str | None = None
    argv: Sequence[str] = ()
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into the workspace before it starts: name and content."""
    outputs: Sequence[str] = ()
    """Files of the workspace that are wanted afterwards."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables besides the few that every call has."""
    cwd: str | None = None
    """Where it starts; the workspace unless set."""
    workspace: Path | None = None
    """A folder on the disk, below the sandbox's `own`, to use in place of a fresh one in memory."""
    limits: Limits = field(default_factory=Limits)
    forked: bool = False

    def __post_init__(self) -> None:
        if self.code is None and not self.argv and not self.forked:
            raise UsageError("A call has nothing to run. Give it `code` or `argv`.")
        for name in (*self.files, *self.outputs):
            if not plain_name(name):
                raise UsageError(f"{name!r} is not a name below the workspace. Use a relative path without `..`.")


def plain_name(name: str) -> bool:
    """Whether a name stays below the folder it is looked up in, links aside."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


@dataclass(frozen=True, slots=True)
class Result:
    """How a call ended."""

    exit: int
    """Its exit code; of a process that was killed, the signal, negative."""
    stdout: str
    stderr: str
    """Text; what is not UTF-8 is replaced, and a text that a limit cut ends with a note."""
    files: Mapping[str, bytes]
    """Those of `outputs` that were there and regular files."""
    ended_by: EndedBy | None
    seconds: float
    cpu_seconds: float = 0.0
    """As measured last, a few times a second."""
    memory_bytes: int = 0
    """The most that was measured."""
    refused: tuple[str, ...] = ()
    """System calls that it tried and was refused."""
