"""Code that nobody has read, held by the kernel: what a model wrote, what a user uploaded, servers of others.

    async with Sandbox(["numpy", "pandas"]) as sandbox:
        result = await sandbox.run(Call("print(1 + 1)", limits=Limits(wall_seconds=5)))

Start reading at `call` (what is asked and answered) and `sandbox` (the port); `connection` speaks to the fork server,
which with all that runs inside is in `inside`. `capabilities` says what holds on this machine.

A call has namespaces of its own (user, pid, mount, ipc, network), a file tree with the system and the interpreter
read-only and a bounded tmpfs, a seccomp filter, Landlock, no capabilities, limits, and ends with everything it started.

What is a boundary: files, processes, sockets and memory of others, and the limits. What is not: the kernel, whose bugs
are not guarded against beyond the system calls that are refused; timing; figures of the whole machine in /proc, such as
its load; how much of the processor others get; with the host's network, whatever that network reaches.

This room knows nothing of environments, rollouts or the platform.
"""

from benchmax.sandbox.call import Call, Limits, Network, Result
from benchmax.sandbox.capabilities import Capabilities, capabilities, insists, require
from benchmax.sandbox.connection import Ended, Forker, Forking, Process, View
from benchmax.sandbox.sandbox import Sandbox

__all__ = [
    "Call",
    "Capabilities",
    "Ended",
    "Forker",
    "Forking",
    "Limits",
    "Network",
    "Process",
    "Result",
    "Sandbox",
    "View",
    "capabilities",
    "insists",
    "require",
]
