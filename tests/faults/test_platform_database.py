"""The database goes away and comes back (F7); the disk is full (F9): words, no loss, no damage."""

import os
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa

from benchmax.platform.store.runs import rollouts
from platform_world import LiveServer, make_run, postgres, postgres_programs, start_postgres, stop_postgres
from runner_world import active, ended, get, is_running, launch, runner, starts, steps, wait_until

COUNT = 60


class Reader:
    """Reads a run all the time; remembers what it was told, and when it had asked."""

    def __init__(self, live, key, run_id):
        self._live, self._key, self._run = live, key, run_id
        self._over = threading.Event()
        self.seen = []
        self._thread = threading.Thread(target=self._read)

    def _read(self):
        with self._live.client(self._key) as client:
            while not self._over.wait(0.05):
                asked = time.monotonic()
                try:
                    status = client.get(f"/v1/train/runs/{self._run}/scalars?mode=train").status_code
                except httpx2.TimeoutException:
                    status = 599
                self.seen.append((asked, status))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.fixture
def database_folder():
    pytest.importorskip("psycopg")
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="benchmax-pg-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [2.0, pytest.param(20.0, marks=pytest.mark.slow)])
def test_postgres_restarts_while_runs_train_and_people_look(tmp_path, database_folder, seconds):
    with postgres(database_folder) as url, LiveServer(tmp_path, database_url=url) as live:
        _, key = live.user("a@example.org")  # whose runs `launch` makes
        work = runner(live.data, url=url)
        try:
            run_id = launch(live.database, steps=COUNT, pause=0.1, every=5)
            wait_until(active(live.database, run_id), 60)
            with Reader(live, key, run_id) as reader:
                stop_postgres(database_folder)
                time.sleep(seconds)  # how long the database is away
                start_postgres(database_folder)
                back = time.monotonic()
                wait_until(lambda: [1 for at, status in reader.seen if at > back + 5 and status == 200], 60)
                wait_until(ended(live.database, run_id), 90)
            assert {status for at, status in reader.seen} <= {200, 503}
            assert {status for at, status in reader.seen if at > back + 5} == {200}
            assert work.poll() is None, "the runner waits for the database, it does not die"
            assert get(live.database, run_id).status == "complete"
            assert steps(live.database, run_id) == list(range(COUNT))
            assert len(starts(live.data, run_id)) == 1, "training does not notice"
            with live.database.read() as session:
                assert len(rollouts.page(session, run_id, split="train", limit=1000)) == 2 * COUNT
        finally:
            work.terminate()
            work.wait(60)
        assert not any(is_running(each["pid"]) for each in starts(live.data, run_id))


# F9


@contextmanager
def small_disk(folder: Path, size: str):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return path


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_is_said_and_nothing_is_damaged(tmp_path):
    with small_disk(tmp_path / "disk", "6m") as disk, LiveServer(disk) as live:
        owner, key = live.user("a@example.org")
        with live.database.write() as session:
            run = make_run(session)
        asked = {"path": "datasets/x/train.jsonl", "mimeType": "application/jsonl"}
        with live.client(key) as client:
            url = client.get("/v1/storage/upload-url", params=asked).json()["uploadUrl"]
            filler = fill(disk)
            refused = client.put(url, content=b"x" * 2_000_000)
            assert refused.status_code in (503, 507), refused.text
            changed = client.patch(f"/v1/train/runs/{run.id}", json={"notes": "n" * 20_000})
            assert changed.status_code == 503, changed.text
            assert "cannot be reached or written" in changed.json()["error"]
            for path in ("", f"/{run.id}", f"/{run.id}/events"):
                assert client.get(f"/v1/train/runs{path}").status_code == 200, "reading goes on"
            assert not [path for path in live.data.blobs.rglob("*") if path.is_file()], "never half a file"
            filler.unlink()
            assert client.patch(f"/v1/train/runs/{run.id}", json={"notes": "after"}).json()["notes"] == "after"
            url = client.get("/v1/storage/upload-url", params=asked).json()["uploadUrl"]
            assert client.put(url, content=b"x" * 1_000_000).status_code == 201
        with live.database.engine.connect() as connection:
            assert connection.scalar(sa.text("PRAGMA integrity_check")) == "ok"
        assert owner == run.owner_id


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_reading_goes_on_when_the_use_of_a_key_cannot_be_noted(tmp_path):
    with small_disk(tmp_path / "disk", "6m") as disk, LiveServer(disk) as live:
        _, key = live.user("a@example.org")
        filler = fill(disk)
        with live.client(key) as client:  # the first use of the key
            assert client.get("/v1/train/runs").status_code == 200
            assert client.get("/v1/whoami").status_code == 200
            filler.unlink()
