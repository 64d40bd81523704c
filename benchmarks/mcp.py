"""MCP environments at scale: how fast servers are ready, how small they are, and what a call through the agent costs.

    python benchmarks/mcp.py [--servers 100] [--rollouts 500] [--json]

Everything runs on this machine with real servers of the mcp SDK. Rates are taken by turns, so that a busy machine slows
both sides; CPU seconds are those of all processes a section started. The old shape is one HTTP proxy in front of each
stdio server, made here of the SDK's own parts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]
# This file has the SDK's name, and its folder would be looked in first.

from mcp import Client, StdioServerParameters  # noqa: E402

from benchmax.envs.example_id import make_example  # noqa: E402
from benchmax.envs.mcp import ParallelMcpEnv  # noqa: E402
from benchmax.envs.mcp.provisioners import LocalProvisioner  # noqa: E402
from benchmax.envs.types import ToolCall  # noqa: E402
from benchmax.models.scripted import ScriptedModel  # noqa: E402
from benchmax.rollouts import EnvHost, Rollout, run_batch  # noqa: E402

DEMO = Path(__file__).parents[1] / "examples" / "mcp_demo"
SERVER = str(DEMO / "demo_mcp_server.py")
PROXY_CALLS = 129.0
"""Calls/s of one session through the old shape, measured once on a quiet machine."""
GREET = {"name": "you"}

PROXY = """
import sys
import anyio, uvicorn
from mcp import Client, StdioServerParameters
from mcp.server import MCPServer

async def main():
    async with Client(StdioServerParameters(command=sys.executable, args=[sys.argv[1]])) as client:
        server = MCPServer("proxy")

        @server.tool()
        async def hello_world(name: str) -> str:
            return (await client.call_tool("hello_world", {"name": name})).content[0].text

        await server.run_streamable_http_async(host="127.0.0.1", port=int(sys.argv[2]))

anyio.run(main)
"""


@dataclass
class Figure:
    """One line of the table; `least` and `most` are the bar."""

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    def line(self) -> str:
        bar = f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}" if self.least is not None else ""
        mark = "" if not bar else "ok" if self.ok else "MISSED"
        return f"{self.name:<52} {self.value:>10,.4g} {self.unit:<8} {bar:<10} {mark:<7} {self.note}".rstrip()


# Measuring


def family(pid: int) -> list[int]:
    """A process and all it started."""
    parents: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [pid], [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def pss_gb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 2**20


def cpu_seconds(pids: list[int]) -> float:
    """What these processes and their ended children have used."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def busy(note: dict[str, float]) -> Iterator[None]:
    """CPU seconds of this process and its family, into `note`."""
    before = cpu_seconds(family(os.getpid()))
    began = time.perf_counter()
    yield
    note["seconds"] = time.perf_counter() - began
    note["cpu"] = cpu_seconds(family(os.getpid())) - before


async def rate(call: Callable[[], Awaitable[object]], seconds: float) -> float:
    """Calls a second, one after the other."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        await call()
        count += 1
    return count / spent


# Sections


async def ready(env: ParallelMcpEnv, servers: int, began: float) -> list[Figure]:
    count = await env.warm(servers, 240.0)
    seconds = time.perf_counter() - began
    pids = family((await env.state())[0]["pids"][0])  # one server, to show that there is one
    assert pids
    agent = [pid for pid in family(os.getpid()) if pid != os.getpid()]
    return [
        Figure(
            f"{count} isolated Python servers ready", seconds, "s", most=4.0, note="from the first line of the program"
        ),
        Figure("CPU for it, all processes", cpu_seconds(agent), "s"),
        Figure("memory of agent and servers (PSS)", pss_gb(agent), "GB", most=1.5),
    ]


async def resets(env: ParallelMcpEnv, times: int = 30) -> list[Figure]:
    """Give a rollout back and have the next one's first answer, again and again."""
    spent: list[float] = []
    await env.init_rollout("reset-0")
    for number in range(times):
        began = time.perf_counter()
        await env.release_rollout(f"reset-{number}")
        await env.init_rollout(f"reset-{number + 1}")
        await env.run_tool(f"reset-{number + 1}", "hello_world", **GREET)
        spent.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(0.1)  # as a rollout would take
    await env.release_rollout(f"reset-{times}")
    return [Figure("reset: release, fresh servers, first answer (median)", median(spent), "ms", most=150.0)]


async def one_session(env: ParallelMcpEnv, rounds: int = 5, seconds: float = 1.0) -> list[Figure]:
    """Calls one after the other: the SDK's client on a server's pipes, and a rollout through the agent."""
    bare: list[float] = []
    ours: list[float] = []
    await env.init_rollout("rate")

    async def turns() -> None:
        async with Client(StdioServerParameters(command=sys.executable, args=[SERVER])) as client:
            for _ in range(rounds):
                bare.append(await rate(lambda: client.call_tool("hello_world", GREET), seconds))
                ours.append(await rate(lambda: env.run_tool("rate", "hello_world", **GREET), seconds))

    await asyncio.create_task(turns())
    await env.release_rollout("rate")
    ratio = median(mine / theirs for mine, theirs in zip(ours, bare, strict=True))
    return [
        Figure("one session, the SDK's client alone", median(bare), "calls/s"),
        Figure("one session, through the agent", median(ours), "calls/s"),
        Figure("through the agent, of the SDK's client", 100 * ratio, "%", least=80.0),
    ]


async def old_shape(seconds: float = 2.0) -> float:
    """Calls/s of one session through an HTTP proxy in front of a stdio server."""
    port = 20_000 + os.getpid() % 20_000
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROXY, SERVER, str(port),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return await asyncio.create_task(_through_proxy(f"http://127.0.0.1:{port}/mcp", seconds))
    finally:
        process.kill()
        await process.wait()


async def _through_proxy(url: str, seconds: float) -> float:
    until = time.perf_counter() + 30
    while True:
        try:
            async with Client(url, mode="legacy") as client:
                await client.call_tool("hello_world", GREET)
                return await rate(lambda: client.call_tool("hello_world", GREET), seconds)
        except Exception:
            if time.perf_counter() > until:
                raise
            await asyncio.sleep(0.2)


async def all_sessions(env: ParallelMcpEnv, servers: int, seconds: float = 5.0) -> list[Figure]:
    """Calls on every server at once."""
    names = [f"all-{number}" for number in range(servers)]
    await asyncio.gather(*map(env.init_rollout, names))
    note: dict[str, float] = {}
    with busy(note):
        rates = await asyncio.gather(
            *(rate(lambda name=name: env.run_tool(name, "hello_world", **GREET), seconds) for name in names)
        )
    await asyncio.gather(*map(env.release_rollout, names))
    total = sum(rates)
    per_call = 1000 * note["cpu"] / (total * seconds)
    proxy = await old_shape()
    return [
        Figure(
            "one session through an HTTP proxy (the old shape)", proxy, "calls/s", note=f"{PROXY_CALLS:g} when quiet"
        ),
        Figure(f"all {servers} servers at once, total", total, "calls/s", least=4 * PROXY_CALLS),
        Figure("the same, times the old shape measured now", total / proxy, "×", least=4.0),
        Figure("CPU of one such call, all processes", per_call, "ms"),
        Figure("total, if both cores were ours", 1000 * 2 / per_call, "calls/s", note="from the CPU of one call"),
    ]


async def rollouts(env: ParallelMcpEnv, count: int) -> list[Figure]:
    """Whole rollouts, with three tool calls and three rewards each."""
    numbers = [str(number) for number in range(count)]
    model = ScriptedModel(_play)
    examples = [
        make_example(prompt_messages=[{"role": "user", "content": each}], task={"ground_truth": int(each)})
        for each in numbers
    ]
    note: dict[str, float] = {}
    async with EnvHost(env) as host:
        with busy(note):
            played = await run_batch(host, examples, model)
        began = time.perf_counter()
    teardown = time.perf_counter() - began
    perfect = sum(_perfect(rollout) for rollout in played)
    return [
        Figure(f"{count} rollouts: played and scored in full", perfect, "", least=count, note=_worst(played)),
        Figure("time for them", note["seconds"], "s"),
        Figure("CPU of one rollout, all processes", 1000 * note["cpu"] / count, "ms"),
        Figure("teardown", teardown, "s", most=5.0),
    ]


def _play(messages: list) -> object:
    number = messages[1]["content"] if messages[0]["role"] == "system" else messages[0]["content"]
    turn = sum(message["role"] == "assistant" for message in messages)
    calls = [
        ToolCall("define_variable", json.dumps({"name": "answer", "value": int(number)})),
        ToolCall("append_log", json.dumps({"filename": "answer.log", "message": number})),
        ToolCall("evaluate", json.dumps({"expression": "answer + 0"})),
    ]
    return calls[turn] if turn < len(calls) else f"It is {number}."


def _perfect(rollout: Rollout) -> bool:
    return rollout.error is None and rollout.rewards == {"completion": 1.0, "variable": 1.0, "log": 1.0}


def _worst(played: list[Rollout]) -> str:
    return next((f"e.g. {each.error or each.rewards}" for each in played if not _perfect(each)), "")


async def measure(servers: int, count: int) -> list[Figure]:
    began = time.perf_counter()
    env = ParallelMcpEnv(DEMO, LocalProvisioner(DEMO, servers))
    figures = await ready(env, servers, began)
    try:
        figures += await resets(env)
        figures += await one_session(env)
        figures += await all_sessions(env, servers)
        figures += await rollouts(env, count)
    finally:
        await env.shutdown()
    left = [pid for pid in family(os.getpid()) if pid != os.getpid()]
    figures.append(Figure("processes left", len(left), "", most=0))
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.servers, options.rollouts))
    if options.json:
        print(json.dumps([{**asdict(figure), "ok": figure.ok} for figure in figures], indent=2))
    else:
        print(
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n" + "\n".join(figure.line() for figure in figures)
        )
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
