"""A flood of connections, live feeds and bodies, and how those who are signed in fare meanwhile (S39, L8)."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from benchmax.platform.store.accounts import api_keys, logins, users
from benchmax.platform.store.runs import events, metrics
from platform_world import make_run
from server_process import ServerProcess

FLOOD = Path(__file__).parents[1] / "support" / "flood.py"
SLOWEST_SECONDS, MEMORY_BYTES, LOG_BYTES = 0.5, 600e6, 10e6
MB = 1_000_000


class Server(ServerProcess):
    """With users, runs and points."""

    def __init__(self, folder: Path, people: int) -> None:
        super().__init__(folder)
        with self.database.write() as session:
            self.people = [self._person(session, number) for number in range(people)]

    def _person(self, session, number):
        email = f"p{number}@example.org"
        user = users.ensure_user(session, email)
        run = make_run(session, email)
        lines = [(step, "train", float(step), {"loss": 1.0, "reward/mean": step / 100}) for step in range(200)]
        metrics.record(session, run.id, [metrics.MetricLine(*line) for line in lines])
        key, cookie = api_keys.create_key(session, user.id)[1], logins.open_login(session, user.id)
        return {"key": key, "cookie": cookie, "run": run.id, "path": f"/v1/train/runs/{run.id}/stream"}

    def processor_time(self):
        """Seconds that its loop ran, and that it was ready to while others had the processor."""
        ran, waited, _ = Path(f"/proc/{self.popen.pid}/schedstat").read_text().split()
        return int(ran) / 1e9, int(waited) / 1e9

    def tell(self, text):
        """News for every live feed."""
        with self.database.write() as session:
            for each in self.people:
                events.append(session, each["run"], "news", text)


class Reader(threading.Thread):
    """Someone who is signed in and looks at a run, over and over."""

    def __init__(self, server, person):
        super().__init__(daemon=True)
        self._server, self._person = server, person
        self.over, self.took, self.wrong = threading.Event(), [], []

    def run(self):
        run, cookies = self._person["run"], {"benchmax_session": self._person["cookie"]}
        paths = ["/v1/train/runs", *(f"/v1/train/runs/{run}{end}" for end in ("/details", "/scalars?mode=train"))]
        with httpx2.Client(base_url=f"http://127.0.0.1:{self._server.port}", cookies=cookies, timeout=60) as client:
            while not self.over.wait(0.1):
                for path in paths:
                    began = time.monotonic()
                    try:
                        answer = client.get(path)
                    except httpx2.TransportError as error:
                        self.wrong.append(repr(error))
                        continue
                    self.took.append(time.monotonic() - began)
                    if answer.status_code != 200:
                        self.wrong.append(f"{answer.status_code} {answer.text[:200]}")


@contextmanager
def readers(server, count):
    made = [Reader(server, server.people[number % len(server.people)]) for number in range(count)]
    for each in made:
        each.start()
    try:
        yield made
    finally:
        for each in made:
            each.over.set()
        for each in made:
            each.join(90)


def flooded(server, seconds, **orders):
    """Run the flood, with news every second; gives what it got and the most memory the server had."""
    given = {"port": server.port, "seconds": seconds, "readers": server.people, **orders}
    with subprocess.Popen([sys.executable, str(FLOOD)], stdin=-1, stdout=-1, text=True) as flood:
        flood.stdin.write(json.dumps(given))
        flood.stdin.close()
        most, told = 0, 0.0
        while flood.poll() is None:
            most = max(most, server.memory())
            if time.monotonic() - told > 1.0:
                server.tell(f"it is {time.time()}")
                told = time.monotonic()
            time.sleep(0.05)
        return json.loads(flood.stdout.read()), most


def stretched(before, after):
    """How many times longer all takes because others have the processor, too: what a busy machine adds."""
    ran, waited = (now - then for then, now in zip(before, after, strict=True))
    return (ran + waited) / ran


def p95(times):
    return statistics.quantiles(times, n=20)[-1]


def targets(server, size):
    """Where bodies go: to whom anybody may speak, and with a key."""
    key = server.people[0]["key"]
    return [
        {"path": "/login", "bytes": size},
        {"path": "/login", "bytes": size, "declared": size},
        {"path": "/v1/corpora", "key": key, "bytes": size},
        {"path": "/v1/corpora", "key": server.people[1]["key"], "bytes": size, "declared": size},
        {"path": "/v1/corpora", "bytes": size},
    ]


@pytest.mark.parametrize(
    ("half_open", "streams", "bodies", "size", "seconds"),
    [
        (300, 200, 10, 70 * MB, 5),
        pytest.param(
            1000, 1000, 50, 70 * MB, float(os.environ.get("BENCHMAX_SOAK_SECONDS", "60")),
            marks=[pytest.mark.slow, pytest.mark.timeout(1800)],
        ),
    ],
)  # fmt: skip
def test_who_is_signed_in_reads_on(tmp_path, capsys, half_open, streams, bodies, size, seconds):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    try:
        with Server(tmp_path, people=5) as server:
            with readers(server, 4) as reading:
                orders = {"half_open": half_open, "streams": streams, "bodies": bodies}
                before = server.processor_time()
                got, most = flooded(server, seconds, **orders, targets=targets(server, size))
                busy = stretched(before, server.processor_time())
            took = [each for reader in reading for each in reader.took]
            wrong = [each for reader in reading for each in reader.wrong]
            logs = sum(path.stat().st_size for path in server.data.logs.iterdir())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with capsys.disabled():
        print(
            f"\nflood: {half_open} half-open, {got['most'].get('stream', 0)} feeds, {bodies} bodies of {size / MB:.0f} "
            f"MB, {seconds:.0f} s: {len(took)} reads, p95 {p95(took) * 1000:.0f} ms, slowest {max(took) * 1000:.0f} "
            f"ms, {busy:.1f} times as long as alone; {most / MB:.0f} MB of memory, {logs / MB:.2f} MB of logs; "
            f"{got['seen']}"
        )
    assert wrong == []
    assert p95(took) < SLOWEST_SECONDS * busy
    assert most < MEMORY_BYTES
    assert logs < LOG_BYTES
    assert got["most"]["stream"] >= 0.95 * streams, "the feeds were there"
    assert got["seen"]["body 413"] > 0
