"""Where the calls of Linux are missing, everything can be imported, and the agent says what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[4] / "examples" / "mcp_demo"

OTHER_SYSTEM = """
import asyncio, ctypes, os, pkgutil, resource, select, socket, sys
import aiohttp, mcp.server.lowlevel, psutil, yaml  # they ask the system which it is when they are imported

for module, names in {
    os: "pidfd_open sched_getaffinity memfd_create pipe2 O_PATH setns unshare",
    socket: "SOCK_SEQPACKET",
    resource: "prlimit RLIMIT_OFILE RLIMIT_RTTIME",
    select: "epoll",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

class Libc:
    def __init__(self, *given, **named): pass

ctypes.CDLL = Libc
sys.platform = "darwin"
import benchmax.envs.mcp
for found in pkgutil.walk_packages(benchmax.envs.mcp.__path__, "benchmax.envs.mcp."):
    if not found.name.endswith("__main__"):
        __import__(found.name)
from benchmax.envs.mcp.agent.lease_pool import usable_cores
from benchmax.envs.mcp.agent.serve import main
from benchmax.sandbox.inside.landlock import version as landlock_version
assert usable_cores() >= 1 and landlock_version() == 0
sys.exit(main(["--workdir", sys.argv[1]]))
"""


def test_without_linux_everything_imports_and_the_agent_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_SYSTEM, str(DEMO)], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    failed = json.loads(done.stdout)["failed"]
    assert "run on Linux, not on darwin" in failed
    assert "ManualProvisioner" in failed
    assert done.returncode == 2
