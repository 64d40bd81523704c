"""How long the console's reads take on a platform with a long past, and what each costs.

    python benchmarks/platform_reads.py [--database sqlite|postgres|both] [--clients 50] [--think 1.0] [--seconds 20]
                                        [--data DIR] [--runs 200 --rollouts 100000 --points 2000000] [--json]

The server is the one `benchmax up` starts, in a process of its own. Each client keeps a connection, asks, thinks a
moment (a random time around --think seconds), asks for something else; --think 0 asks at once and so measures
throughput. Beside the times: processor time of the server for one request, alone (`cpu`), and how many statements it
sends to the database (`queries`). /healthz, under the same load, says what the machine gives: a busy one slows both.
The bar is a p95 of 150 ms over all reads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _platform_data import Size, build, counts, wanted

from benchmax.net import ports
from benchmax.platform.daemon import liveness
from benchmax.platform.daemon.options import Options
from benchmax.platform.server.app import create_app
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.database import Database, open_database
from benchmax.platform.store.datadir import DataDir

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

BAR = 0.150
FLOOR = "healthz"


def reads(ids: dict[str, str]) -> dict[str, tuple[str, int]]:
    """Every read a console makes: its path, and how often beside the others."""
    run, long = f"/v1/train/runs/{ids['run']}", f"/v1/train/runs/{ids['long']}"
    return {
        FLOOR: ("/healthz", 4),
        "runs list": ("/v1/train/runs?limit=50", 4),
        "runs list, all": ("/v1/train/runs", 1),
        "run": (run, 4),
        "details": (f"{long}/details", 3),
        "scalars": (f"{run}/scalars?mode=train", 3),
        "scalars, long run": (f"{long}/scalars?mode=train", 1),
        "scalars, 300 buckets": (f"{long}/scalars?mode=train&buckets=300", 3),
        "rollouts": (f"{long}/rollouts?mode=train&limit=50", 3),
        "rollouts, filtered": (f"{long}/rollouts?mode=train&failed=true&page=3", 2),
        "summary": (f"{long}/rollouts/summary?mode=train&limit=50", 2),
        "heatmap": (f"{long}/rollouts/heatmap?mode=train&promptMessageId=example-3", 2),
        "rollout": (f"{long}/rollouts/{ids['long_rollout']}/details", 4),
        "mode average": (f"{long}/rollouts/mode-average?mode=train", 2),
        "component averages": (f"{long}/rollouts/component-averages?mode=train", 1),
        "comparison": (f"{run}/rollouts/comparison?externalEvalId={ids['run_eval']}", 2),
        "logs": (f"{long}/environment-logs?limit=200", 2),
        "logs of a rollout": (f"{long}/environment-logs?rolloutId={ids['long_rollout']}", 2),
        "events": (f"{long}/events", 2),
    }


# Asking


class Connection:
    """One keep-alive connection; as little work as can be, for the client shares the machine."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = (
            f" HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        self._reader: asyncio.StreamReader | None = None

    async def get(self, path: str) -> tuple[int, int]:
        """The status, and the bytes of the body."""
        if self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        self._writer.write(f"GET {path}{self._head}".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        await self._reader.readexactly(length)
        return status, length


async def load(
    port: int, key: str, asked: dict[str, tuple[str, int]], clients: int, think: float, seconds: float
) -> dict[str, list[float]]:
    """Seconds of every answer under load, by read."""
    times: dict[str, list[float]] = defaultdict(list)
    until = time.monotonic() + seconds
    names, weights = list(asked), [weight for _, weight in asked.values()]

    async def client(number: int) -> None:
        chance = random.Random(number)
        connection = Connection(port, key)
        await asyncio.sleep(think * chance.random())
        while time.monotonic() < until:
            name = chance.choices(names, weights)[0]
            began = time.perf_counter()
            status, _ = await connection.get(asked[name][0])
            assert status == 200, (name, status)
            times[name].append(time.perf_counter() - began)
            await asyncio.sleep(think * chance.uniform(0.5, 1.5))

    await asyncio.gather(*(client(number) for number in range(clients)))
    return times


async def alone(
    pid: int, port: int, key: str, asked: dict[str, tuple[str, int]], least: float = 0.4
) -> dict[str, dict[str, float]]:
    """What one request costs when it has the server for itself: ms of the first and the median, processor ms, bytes."""
    found = {}
    connection = Connection(port, key)
    for name, (path, _) in asked.items():
        times: list[float] = []
        start = time.perf_counter()
        await connection.get(path)
        first = time.perf_counter() - start
        busy, began = processor(pid), time.monotonic()
        while time.monotonic() - began < least or len(times) < 20:
            start = time.perf_counter()
            _, size = await connection.get(path)
            times.append(time.perf_counter() - start)
        cost = 1e3 * (processor(pid) - busy) / len(times)
        found[name] = {"cpu": cost, "bytes": size, "first": 1e3 * first, "alone": 1e3 * middle(times)}
    return found


def processor(pid: int) -> float:
    """Seconds of processor time of a process, all threads, to the nanosecond (/proc/PID/stat counts in 10 ms)."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass  # a thread that ended
    return total / 1e9


def statements(database: Database, data: DataDir, key: str, asked: dict[str, tuple[str, int]]) -> dict[str, int]:
    """How many statements a read sends, the frames of a transaction left out."""
    import httpx2
    from sqlalchemy import event

    seen: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    app = create_app(ServerSettings(data=data), database)

    async def count() -> dict[str, int]:
        found = {}
        headers = {"Authorization": f"Bearer {key}"}
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            for name, (path, _) in asked.items():
                (await client.get(path)).raise_for_status()
                seen.clear()
                (await client.get(path)).raise_for_status()
                found[name] = sum(not each.startswith("BEGIN") for each in seen)
        return found

    return asyncio.run(count())


# Telling


def middle(values: list[float], share: float = 0.5) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def table(
    times: dict[str, list[float]], costs: dict[str, dict[str, float]], queries: dict[str, int]
) -> list[dict[str, Any]]:
    floor = middle(times[FLOOR], 0.95)
    rows = []
    for name in costs:
        taken = times.get(name, [])
        p50, p95, p99 = (1e3 * middle(taken, share) for share in (0.5, 0.95, 0.99))
        row: dict[str, Any] = {"read": name, "count": len(taken), "p50": p50, "p95": p95, "p99": p99}
        rows.append(row | {"ratio": p95 / (1e3 * floor), **costs[name], "queries": queries[name]})
    every = [each for name, taken in times.items() if name != FLOOR for each in taken]
    whole = {f"p{round(share * 100)}": 1e3 * middle(every, share) for share in (0.5, 0.95, 0.99)}
    return [*rows, {"read": "all reads", "count": len(every), **whole, "ratio": whole["p95"] / (1e3 * floor)}]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    columns = ("count", "p50", "p95", "p99", "ratio", "first", "alone", "cpu", "queries", "bytes")
    print(f"{'read':22}" + "".join(f"{name:>10}" for name in columns))
    for row in rows:
        cells = (row.get(name, "") for name in columns)
        print(
            f"{row['read']:22}"
            + "".join(f"{cell:10.1f}" if isinstance(cell, float) else f"{cell:>10}" for cell in cells)
        )


# Putting it together


def measure(kind: str, folder: Path, given: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    url = None
    if kind == "postgres":
        from platform_world import postgres

        url = stack.enter_context(postgres(folder / "postgres"))
    data = DataDir(folder / "data").create()
    database = open_database(data, url)
    stack.callback(database.close)
    key_file, began = folder / "key", time.monotonic()
    if not key_file.exists():
        size = Size(given.runs, given.rollouts, given.points, min(given.points // 5 // 20, 10_000))
        key_file.write_text(build(database, data, size))
        print(f"{kind}: {counts(database)} written in {time.monotonic() - began:.0f} s", flush=True)
    key = key_file.read_text()
    asked = reads(wanted(database))
    queries = statements(database, data, key, asked)
    port = ports.free_port()
    options = Options(data, port, url)
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(options.server(), stdout=log, stderr=log, env=options.variables())
    stack.callback(server.wait)
    stack.callback(server.terminate)
    while liveness.server_url(data) is None:
        assert server.poll() is None, (folder / "server.log").read_text()
        time.sleep(0.1)
    costs = asyncio.run(alone(server.pid, port, key, asked))
    busy = processor(server.pid)
    times = asyncio.run(load(port, key, asked, given.clients, given.think, given.seconds))
    busy = processor(server.pid) - busy
    rows = table(times, costs, queries)
    answers = sum(map(len, times.values()))
    return {
        "database": kind,
        "rows": rows,
        "rate": answers / given.seconds,
        "cpu": 1e3 * busy / answers,
        "ok": rows[-1]["p95"] < 1e3 * BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--think", type=float, default=1.0, help="seconds between an answer and the next question")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=2_000_000)
    parser.add_argument("--data", type=Path, help="keep the data set of SQLite here, or use the one that is here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    kinds = ["sqlite", "postgres"] if given.database == "both" else [given.database]
    results = []
    for kind in kinds:
        keep = given.data is not None and kind == "sqlite"
        folder = given.data if keep else Path(tempfile.mkdtemp(prefix="benchmax-reads-"))
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if not keep:
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            result = measure(kind, folder, given, stack)
        results.append(result)
        if not given.json:
            load_words = f"{given.clients} clients, {result['rate']:.0f} requests/s, {result['cpu']:.1f} ms cpu each"
            show(f"{kind}: {load_words} (times in ms)", result["rows"])
            print(f"p95 of all reads {result['rows'][-1]['p95']:.0f} ms; the bar is {1e3 * BAR:.0f}")
    if given.json:
        print(json.dumps(results))
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
