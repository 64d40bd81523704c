"""Runs untrusted code under the kernel's guards: what a model wrote, what a user uploaded, servers of others.

    async with Sandbox(["numpy", "pandas"]) as sandbox:
        result = await sandbox.run(Call("print(1 + 1)", limits=Limits(wall_seconds=5)))

Start reading at `call` (a request and its result) and `sandbox` (`Sandbox`); `connection` speaks to the fork server,
which is in `inside` with everything else that runs there. `capabilities` says which guards work on this machine.

A call has namespaces of its own (user, pid, mount, ipc, network), a file tree with the system and the interpreter
read-only and a bounded tmpfs, a seccomp filter, Landlock, no capabilities, limits, and ends with everything it started.

Protected are files, processes, sockets and memory of others, and the limits hold. Not protected are the kernel, against
whose bugs there is only the refusal of system calls; timing; figures of the whole machine in /proc, such as its load;
the share of the processor that others get; with the host's network, whatever that network reaches.

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
