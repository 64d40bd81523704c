"""kill -9 and SIGSTOP of all that one daemon keeps, with readers: nothing lost, nothing twice, nobody left (F1–F3)."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest

from benchmax.net import ports
from benchmax.platform.daemon import liveness
from benchmax.platform.store.accounts import api_keys, users
from benchmax.platform.store.runs import rollouts
from benchmax.platform.store.uploads import blobs
from runner_world import HERE, ended, get, is_running, launch, open_world, starts, steps, wait_until

pytestmark = pytest.mark.timeout(600)  # many processes are started again and again


class World:
    """A daemon, its server and its runner of stubs, on a data directory."""

    def __init__(self, folder: Path) -> None:
        self.database, self.data = open_world(folder)
        self.port = ports.free_port()
        words = [sys.executable, str(HERE / "stub_daemon.py"), str(self.data.root), str(self.port)]
        with open(self.data.logs / "daemon.log", "ab") as log:
            self.daemon = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(HERE)})
        with self.database.write() as session:
            user = users.ensure_user(session, "a@example.org")  # whose runs `launch` makes
            self.user, self.key = user.id, api_keys.create_key(session, user.id)[1]
        wait_until(lambda: liveness.server_url(self.data), 90)

    def pid(self, name):
        """Of the server or the runner that runs now."""

        def running():
            pid = ((liveness.read_daemon(self.data) or {}).get(name) or {}).get("pid")
            return pid if pid and is_running(pid) else None

        return wait_until(running, 90)

    def children(self):
        return [each["pid"] for folder in self.data.runs.iterdir() for each in starts(self.data, folder.name)]

    def client(self):
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60)

    def close(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(40)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        for pid in self.children():
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.database.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One for all tests: what was killed in one is whole again for the next."""
    made = World(tmp_path_factory.mktemp("platform"))
    yield made
    made.close()


def check_whole(world, run_id, count):
    assert get(world.database, run_id).status == "complete", get(world.database, run_id).reason
    assert steps(world.database, run_id) == list(range(count))
    with world.database.read() as session:
        assert len(rollouts.page(session, run_id, split="train", limit=10_000)) == 2 * count
        assert len(rollouts.logs(session, run_id, limit=10_000)) == 2 * count


class Readers:
    """Clients that read the whole time; what is no answer (the server is away) is tried again."""

    def __init__(self, world, run_ids, count=3):
        self._world, self._ids, self._over = world, run_ids, threading.Event()
        self.answers, self.wrong = 0, []
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(count)]

    def _read(self, number):
        chance = random.Random(number)
        with self._world.client() as client:
            while not self._over.wait(0.05):
                path = chance.choice(["", "/details", "/scalars?mode=train", "/rollouts?mode=train", "/events"])
                try:
                    answer = client.get(f"/v1/train/runs/{chance.choice(self._ids)}{path}")
                except httpx2.TransportError:
                    continue
                self.answers += 1
                if answer.status_code not in (200, 503):
                    self.wrong.append((answer.status_code, answer.text))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(
    ("runs", "count", "kills"),
    [(2, 20, 5), pytest.param(6, 150, 40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_kill_anything_in_any_order_under_load(world, runs, count, kills):
    chance = random.Random(runs)
    ids = [launch(world.database, steps=count, pause=0.1, every=3, max_attempts=1000) for _ in range(runs)]
    with Readers(world, ids) as readers:
        for turn in range(kills):
            wait_until(lambda: ended(world.database, *ids)() or any(map(is_running, world.children())), 120)
            time.sleep(chance.uniform(0.1, 0.8))  # any moment is as good as another
            names = [("server",), ("runner",), ("child",), ("runner", "child"), ("server", "runner", "child")]
            for name in names[turn % len(names)]:
                alive = [pid for pid in world.children() if is_running(pid)]
                with contextlib.suppress(ProcessLookupError):  # it may just have ended
                    if name == "child" and alive:
                        os.kill(chance.choice(alive), signal.SIGKILL)
                    elif name != "child":
                        os.kill(world.pid(name), signal.SIGKILL)
        wait_until(ended(world.database, *ids), 200 + count)
        wait_until(lambda: liveness.server_url(world.data), 90)
    for run_id in ids:
        check_whole(world, run_id, count)
    assert readers.answers >= 3
    assert readers.wrong == []
    wait_until(lambda: not any(map(is_running, world.children())))


@pytest.mark.parametrize("name", ["server", pytest.param("runner", marks=pytest.mark.slow)])
def test_one_that_hangs_is_started_again(world, name):
    run_id = launch(world.database, steps=30, pause=0.1, every=3)
    wait_until(lambda: get(world.database, run_id).latest_step, 90)
    wait_until(lambda: liveness.server_lives(world.data) and liveness.runner_lives(world.data), 90)
    old = world.pid(name)
    os.kill(old, signal.SIGSTOP)
    wait_until(lambda: not is_running(old))
    assert world.pid(name) != old
    wait_until(ended(world.database, run_id), 120)
    check_whole(world, run_id, 30)
    wait_until(lambda: liveness.server_lives(world.data), 90)
    assert f"The {name} (process {old}) is stuck" in (world.data.logs / "daemon.log").read_text()


def test_an_upload_cut_off_by_a_killed_server_leaves_nothing(world):
    """F3: absent, not half; and the next one is whole."""
    with world.client() as client:
        asked = {"path": "datasets/x/train.jsonl", "mimeType": "application/jsonl"}
        url = client.get("/v1/storage/upload-url", params=asked).raise_for_status().json()["uploadUrl"]
        old = world.pid("server")

        def body():
            yield b"x" * 300_000
            wait_until(lambda: any(path.stat().st_size for path in world.data.blobs.glob(".tmp-*")))
            os.kill(old, signal.SIGKILL)
            yield b"y" * 300_000

        with pytest.raises(httpx2.TransportError):
            client.put(url, content=body(), headers={"Content-Length": "600000"})
    wait_until(lambda: world.pid("server") != old and liveness.server_lives(world.data), 90)
    assert not [path for path in world.data.blobs.rglob("*") if path.is_file()]
    with world.database.read() as session:
        assert blobs.find(session, world.user, asked["path"]) is None
    with world.client() as client:
        url = client.get("/v1/storage/upload-url", params=asked).raise_for_status().json()["uploadUrl"]
        assert client.put(url, content=b"x" * 600_000).json()["bytes"] == 600_000
