"""What a sandboxed call costs: `python benchmarks/sandbox.py [--calls 100]`.

Printed are the milliseconds of one call after another (median, and the 90th of 100), the memory of one beyond its
parent's, and how long a hundred at once take. The bar: 12 ms with pandas at hand, 20 ms for an interpreter of its own,
15 MB. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmax.sandbox import Call, Limits, Sandbox

USE = "import pandas\nprint(pandas.DataFrame({'a': [1, 2, 3]}).a.sum())"
STAY = f"{USE}\nimport time; time.sleep(60)"
PACKAGES = [name for name in ("numpy", "pandas", "openpyxl") if importlib.util.find_spec(name)]
SMALL = ("Private_Clean:", "Private_Dirty:")


async def one_by_one(name: str, sandbox: Sandbox, call: Call, count: int, bar: float | None = None) -> None:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        result = await sandbox.run(call)
        took.append((time.perf_counter() - began) * 1000)
        assert result.exit == 0, result
    tenths = statistics.quantiles(took, n=10)
    told = "" if bar is None else f"   bar {bar:g}"
    print(f"{name:44} {statistics.median(took):7.1f} ms   p90 {tenths[8]:7.1f}   least {min(took):6.1f}{told}")


async def at_once(sandbox: Sandbox, count: int) -> None:
    began = time.perf_counter()
    results = await asyncio.gather(*(sandbox.run(Call(USE)) for _ in range(count)))
    assert all(result.exit == 0 for result in results)
    seconds = time.perf_counter() - began
    print(f"{f'{count} at once, with pandas':44} {seconds:7.2f} s    {seconds / count * 1000:.1f} ms each")


def kilobytes(pid: str) -> int:
    """Memory that this process shares with no other, its page tables included."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        lines += [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmPTE")]
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith((*SMALL, "VmPTE:")))


def descendants(pid: int) -> list[str]:
    found = [str(pid)]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += children.read_text().split()
    return found


async def memory(sandbox: Sandbox, count: int) -> None:
    """Of several calls that have used pandas and stay, with the pid 1 of each."""
    server = descendants(os.getpid())
    calls = [asyncio.create_task(sandbox.run(Call(STAY, limits=Limits(wall_seconds=60)))) for _ in range(count)]
    most = 2 * count  # the first stood ready before, and after the last another one does
    while len(new := [pid for pid in descendants(os.getpid()) if pid not in server]) < most:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    each = sum(map(kilobytes, new)) / count / 1000
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    print(f"{'memory of a call beyond the parent':44} {each:7.1f} MB   bar 15")


async def bubblewrap(count: int) -> None:
    took = []
    tree = [part for path in ("/usr", "/lib", "/lib64", "/bin", "/etc") for part in ("--ro-bind-try", path, path)]
    command = ["bwrap", "--unshare-all", *tree, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true"]
    for _ in range(count):
        began = time.perf_counter()
        await asyncio.to_thread(subprocess.run, command, check=True)
        took.append((time.perf_counter() - began) * 1000)
    print(f"{'bubblewrap, /bin/true, without seccomp':44} {statistics.median(took):7.1f} ms   least {min(took):6.1f}")


async def main(count: int, many: int) -> None:
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, packages {', '.join(PACKAGES) or 'none'}")
    async with Sandbox() as sandbox:
        await one_by_one("a fork without packages", sandbox, Call("pass"), count)
        await one_by_one("/bin/true", sandbox, Call(argv=["/bin/true"]), count)
        cold = Call(argv=[sys.executable, "-I", "-c", "pass"])
        await one_by_one("an interpreter of its own, no imports", sandbox, cold, count, 20)
    if importlib.util.find_spec("pandas"):
        async with Sandbox(PACKAGES) as sandbox:
            await one_by_one("pandas used for the first time", sandbox, Call(USE), count)
        async with Sandbox(PACKAGES, warm_up=USE) as sandbox:
            await one_by_one("pandas used, warm", sandbox, Call(USE), count, 12)
            await one_by_one("pandas at hand and not used", sandbox, Call("pass"), count)
            await memory(sandbox, 10)
            await at_once(sandbox, many)
    if shutil.which("bwrap"):
        await bubblewrap(count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=100)
    given = parser.parse_args()
    asyncio.run(main(given.calls, given.at_once))
