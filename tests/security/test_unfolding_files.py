"""Files that unfold into far more than they are, by every way in: the server's memory stays where it was (S39, F14)."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from contextlib import contextmanager

import pytest

from benchmax import limits
from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.platform.runner import ingest as ingesting
from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.runner.processes.machine_usage import UsageRecorder
from benchmax.platform.runner.processes.run_process import RunProcess
from benchmax.platform.runner.supervisor import latest_checkpoint
from benchmax.platform.store.runs import rollouts
from platform_world import make_run
from runner_world import open_world, wait_until
from server_process import ServerProcess

GROWN_BYTES = 150e6
ROW = limits.ROW_BYTES - 1000
UNFOLDING = json.dumps({"prompt": "x", "more": []})[:-2].encode() + b"{}," * ((ROW - 40) // 3) + b"{}]}\n"
"""Two megabytes that are forty in memory."""


LLM = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("unfolding")) as made:
        made.key = made.user()[1]
        with made.client(made.key) as client:
            client.get("/v1/train/runs")
            client.post("/v1/datasets", params={"name": "warm.csv"}, content=b"prompt\n" + b"a\n" * 20)
        yield made


@contextmanager
def no_growth(server):
    """The most memory that the server has meanwhile is little more than before."""
    before, most, over = server.memory(), [0], threading.Event()

    def watch():
        while not over.wait(0.01):
            most[0] = max(most[0], server.memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert most[0] - before < GROWN_BYTES, f"{(most[0] - before) / 1e6:.0f} MB"


def upload(client, path, content):
    asked = {"path": path, "mimeType": "application/octet-stream"}
    url = client.get("/v1/storage/upload-url", params=asked).raise_for_status().json()["uploadUrl"]
    client.put(url, content=content).raise_for_status()
    return path


def test_previews_show_what_a_page_can_hold(server):
    with server.client(server.key) as client:
        path = upload(client, "datasets/big.jsonl", UNFOLDING * 12)
        with no_growth(server):
            answer = client.get("/v1/datasets/preview", params={"path": path, "limit": 12})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["rows"] == 12
        assert 1 <= len(found["sample"]) < 10


def test_rows_for_a_rollout_are_no_more_than_can_be_held(server):
    bundle = dump_bundle(Plain)
    with server.client(server.key) as client:
        rows = upload(client, "datasets/rows.jsonl", UNFOLDING * 60)
        env = {
            "env_cls_path": upload(client, "envs/a/env-cls.pkl", bundle.pickled),
            "env_metadata_path": upload(client, "envs/a/env-metadata.json", bundle.metadata.to_json_bytes()),
        }
        body = {"env": env, "dataset_path": rows, "max_examples": 60, "llm": LLM}
        with no_growth(server):
            answer = client.post("/v1/rollout/batch/stream", json=body)
        assert answer.status_code == 400, answer.text
        assert "Ask for fewer" in answer.text


class Plain(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": 1.0}


@pytest.mark.parametrize("inside", [b"[" + b"{}," * 5_000_000 + b"{}]", b"[" + b"1," * 7_000_000 + b"1]"])
def test_a_bundles_manifest_is_looked_at_before_it_is_parsed(server, inside):
    bundle = dump_bundle(Plain)
    manifest = json.dumps(json.loads(bundle.metadata.to_json_bytes())).encode()
    hostile = manifest[:-1] + b', "more": ' + inside + b"}"
    with server.client(server.key) as client:
        by_path = {
            "env_cls_path": upload(client, "envs/b/env-cls.pkl", bundle.pickled),
            "env_metadata_path": upload(client, "envs/b/env-metadata.json", hostile),
        }
        by_bytes = {
            "env_cls_bytes": base64.b64encode(bundle.pickled).decode(),
            "env_metadata_bytes": base64.b64encode(hostile).decode(),
        }
        for env in (by_path, by_bytes):
            with no_growth(server):
                body = {"env": env, "raw_example": {"prompt": "x"}, "llm": LLM}
                answer = client.post("/v1/rollout/stream", json=body)
            assert answer.status_code == 400
            assert "metadata" in answer.text
        with no_growth(server):
            assert client.get("/v1/environments").status_code == 200


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "json", "parquet"])
@pytest.mark.parametrize("size", [30_000_000, pytest.param(500_000_000, marks=pytest.mark.slow)])
def test_one_row_of_hundreds_of_megabytes(server, suffix, size):
    """F14: refused by its limit, by whichever reader; the server is no larger for it."""

    def pieces():
        yield {"csv": b'prompt\n"', "tsv": b'prompt\n"', "parquet": b"PAR1"}.get(suffix, b'{"prompt": "')
        for _ in range(size // 1_000_000):
            yield b"x" * 1_000_000
        yield b'"\n' if suffix in ("csv", "tsv") else b'"}\n'

    with server.client(server.key) as client, no_growth(server):
        answer = client.post("/v1/datasets", params={"name": f"row-{size}.{suffix}"}, content=pieces())
    assert answer.status_code in (400, 413), answer.text[:300]  # by its row, or by the whole body
    assert len(answer.text) < 5000


# What a run's own code leaves in its folder, and the runner reads


@pytest.fixture
def run(tmp_path):
    database, data = open_world(tmp_path)
    with database.write() as session:
        run_id = make_run(session).id
    folder = data.run(run_id)
    for name in ("rollouts", "checkpoints"):
        (folder / name).mkdir(parents=True)
    yield database, run_id, folder
    database.close()


def record(number, **more):
    return json.dumps({"id": f"r{number}", "example_id": "e", "step": 0, "split": "train", **more}).encode() + b"\n"


@pytest.mark.parametrize(
    "hostile", [b"x" * 300_000 + b"\n", b'{"id": "a", "x": [' + b"{}," * 1_100_000 + b"{}]}\n"], ids=["long", "unfolds"]
)
def test_a_line_that_is_too_much_costs_itself_alone(run, monkeypatch, hostile):
    database, run_id, folder = run
    monkeypatch.setattr(ingesting, "LINE_BYTES", 100_000 if len(hostile) < 1_000_000 else 64_000_000)
    path = folder / "rollouts" / "train-0.jsonl"
    path.write_bytes(record(0) + hostile + record(1))
    reader = Ingest(database, run_id, folder)
    assert reader.step(30)
    with path.open("ab") as file:
        file.write(b"y" * 250_000)  # another, which has no end yet
    reader.step(30)
    with path.open("ab") as file:
        file.write(b"\n" + record(2))
    while not reader.step(30):
        pass
    with database.read() as session:
        rows = rollouts.page(session, run_id, split="train", limit=100)
        assert sorted(row.id for row in rows) == ["r0", "r1", "r2"]
        assert all(rollouts.read_body(folder, row)["id"] == row.id for row in rows)


@pytest.mark.parametrize("trap", ["fifo", "link"])
def test_the_runner_neither_waits_for_a_pipe_nor_follows_a_link(run, tmp_path, trap):
    _database, _run_id, folder = run
    outside = tmp_path / "outside"
    outside.write_text("step-7")
    for name in ("checkpoints/latest", "system.jsonl", "child.log"):
        os.mkfifo(folder / name) if trap == "fifo" else (folder / name).symlink_to(outside)
    done = []

    def look():
        done.append(latest_checkpoint(folder))
        process = RunProcess.start(folder, command=("sh", "-c", "echo said"))
        wait_until(lambda: not process.poll())
        gauge = UsageRecorder()
        for _ in range(2):
            try:
                gauge._at = 0.0 if not gauge._at else 1.0
                gauge.write(folder, [[os.getpid(), 0, 0, 0, 0.0]])
            except OSError as error:
                done.append(error)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    watching.join(60)
    assert not watching.is_alive(), "it waits"
    assert done[0] == -1
    assert (folder / "child.log").read_text() == "said\n"
    assert outside.read_text() == "step-7"
    assert time.monotonic() > 0
