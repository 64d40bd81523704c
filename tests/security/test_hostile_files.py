"""Files that users and their code leave: links out of a run's folder (S20–S22), names, and bombs (S39)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile

import pytest

from benchmax.files import json_size
from benchmax.files.links import open_plain, read_plain
from benchmax.platform.daemon.backup import back_up
from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.server.services.datasets import rows_child
from benchmax.platform.store.runs import rollouts
from benchmax.platform.store.tables import Chunk, RolloutRow
from platform_world import LiveServer, make_run

CANARY = "canary-of-the-platform"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("files")) as server:
        server.data.credentials.write_text(json.dumps({"kind": "alert", "id": "r", "message": CANARY}) + "\n")
        _, server.key = server.user()
        yield server


@pytest.fixture
def run(world):
    with world.database.write() as session:
        made = make_run(session, "me@example.org")
    folder = world.data.run(made.id)
    (folder / "logs").mkdir(parents=True)
    (folder / "rollouts").mkdir()
    return made


# Links


NAMES = ("child.log", "logs/train.log", "config.json", "system.jsonl", "checkpoints/latest", "vocabulary.json")


@pytest.mark.parametrize("kind", ["file", "folder", "hard way"])
def test_what_a_link_in_a_run_folder_leads_to_is_not_shown(world, run, kind):
    folder = world.data.run(run.id)
    (folder / "checkpoints").mkdir()
    for name in NAMES:
        place = folder / name
        if kind == "file":
            place.symlink_to(world.data.credentials)
        elif kind == "hard way":
            place.symlink_to("/dev/fd/0")
        elif place.parent != folder:
            place.parent.rmdir()
            place.parent.symlink_to(world.data.root)
    with world.client(world.key) as client:
        for path in ("logs?process=child", "logs?process=trainer", "config", "system", "checkpoints", "details"):
            answer = client.get(f"/v1/train/runs/{run.id}/{path}")
            assert answer.status_code == 200, (path, answer.text)
            assert CANARY not in answer.text, path


def test_a_linked_export_is_not_downloaded(world, run):
    folder = world.data.run(run.id)
    checkpoint = folder / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights.safetensors").write_bytes(b"w")
    os.utime(checkpoint / "weights.safetensors", (1, 1))
    (folder / "exports").mkdir()
    (folder / "exports" / "step-1-merged.tar").symlink_to(world.data.credentials)
    path = f"/v1/train/runs/{run.id}/checkpoints/step-1/download"
    with world.client(world.key) as client:
        answer = client.get(path, params={"wait": 0})
        assert CANARY not in answer.text
        assert answer.status_code in (202, 404)
        (folder / "exports" / "step-1-merged.tar").unlink()
        (folder / "exports" / "step-1-merged.tar").write_bytes(b"tar")
        assert client.get(path).content == b"tar"


def test_a_linked_record_is_neither_ingested_nor_read(world, run):
    folder = world.data.run(run.id)
    for name in ("events.jsonl", "metrics.jsonl", "rollouts/train-0.jsonl"):
        (folder / name).symlink_to(world.data.credentials)
    ingest = Ingest(world.database, run.id, folder)
    assert ingest.step()
    with world.database.read() as session:
        assert not rollouts.logs(session, run.id, limit=10)
    row = RolloutRow(run_id=run.id, id="r", file="rollouts/train-0.jsonl", offset=0, length=200)
    assert rollouts.read_body(folder, row) is None


def test_a_backup_holds_no_file_that_a_link_leads_to(world, run, tmp_path):
    folder = world.data.run(run.id)
    (folder / "child.log").symlink_to(world.data.credentials)
    (folder / "logs").rmdir()
    (folder / "logs").symlink_to(world.data.root)
    (folder / "kept.txt").write_text("kept")
    target = back_up(world.data, tmp_path / "backup.tar", database=world.database.is_sqlite)
    with tarfile.open(target) as archive:
        mine = {name for name in archive.getnames() if run.id in name}
        assert mine == {f"runs/{run.id}", f"runs/{run.id}/kept.txt", f"runs/{run.id}/rollouts"}


def test_only_regular_files_below_a_folder_are_opened(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "in" / "fifo")
    assert read_plain(tmp_path, "in/file", 1) == b"x"
    for name in ("link/file", "../" + tmp_path.name + "/in/file", str(tmp_path / "in" / "file"), "in", "in/fifo", ""):
        with pytest.raises(OSError, match=r"\w"):
            open_plain(tmp_path, name)
    with pytest.raises(OSError, match="too large"):
        read_plain(tmp_path, "in/file", 0)


# Names


@pytest.mark.parametrize("name", ["中文", "naïve", '"; filename=x', "…/../x\r\nX: y", "plain"])
def test_a_run_of_any_name_can_be_downloaded(world, run, name):
    checkpoint = world.data.run(run.id) / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights.safetensors").write_bytes(b"w")
    (world.data.run(run.id) / "exports").mkdir()
    (world.data.run(run.id) / "exports" / "step-1-merged.tar").write_bytes(b"tar")
    with world.client(world.key) as client:
        client.patch(f"/v1/train/runs/{run.id}", json={"name": name})
        answer = client.get(f"/v1/train/runs/{run.id}/checkpoints/step-1/download")
    assert (answer.status_code, answer.content) == (200, b"tar")
    said = answer.headers["content-disposition"]
    assert re.fullmatch(r"""attachment; filename="[\w.-]+"(; filename\*=UTF-8''[\w.%-]+)?""", said, re.ASCII), said
    assert ("%E4%B8%AD" in said) == (name == "中文")


# Depth


def nested(levels):
    value: dict = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def test_deep_metadata_is_refused_and_does_not_close_a_corpus(world):
    with world.client(world.key) as client:
        corpus = client.post("/v1/corpora", json={"name": "deep"}).json()["id"]
        chunks = f"/v1/corpora/{corpus}/chunks"
        for levels, status in ((10, 200), (100, 400), (500, 400)):
            body = {"chunks": [{"id": f"c{levels}", "content": "words here", "metadata": nested(levels)}]}
            answer = client.post(chunks, json=body)
            assert answer.status_code == status, answer.text
        assert "nested deeper" in answer.json()["error"]
        with world.database.write() as session:
            session.add(Chunk(corpus_id=corpus, id="old", content="words of before", meta=nested(500)))
        found = client.get(chunks)
        assert [each["id"] for each in found.json()["results"]] == ["c10", "old"]
        hits = client.post(f"/v1/corpora/{corpus}/search", json={"query": "words"})
        assert hits.json()["total"] == 2


# Bombs


BOMB = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
pq.write_table(pa.table({"prompt": ["x" * 200_000_000]}), sys.argv[1], compression="zstd", use_dictionary=False)
"""


def memory_of_this_process():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


@pytest.mark.timeout(200)
def test_a_parquet_bomb_bursts_elsewhere(world, tmp_path):
    pytest.importorskip("pyarrow")
    subprocess.run([sys.executable, "-c", BOMB, tmp_path / "bomb.parquet"], check=True)
    content = (tmp_path / "bomb.parquet").read_bytes()
    assert len(content) < 100_000
    before = memory_of_this_process()
    with world.client(world.key) as client:
        answer = client.post("/v1/datasets", params={"name": "bomb.parquet"}, content=content)
        assert answer.status_code in (201, 400), answer.text
        assert client.get("/healthz").status_code == 200
    assert memory_of_this_process() - before < 150 * 1024 * 1024


@pytest.mark.timeout(200)
def test_a_json_file_of_empty_objects_bursts_elsewhere(world):
    content = b"[" + b"{}," * 14_000_000 + b"{}]"
    before = memory_of_this_process()
    with world.client(world.key) as client:
        answer = client.post("/v1/datasets", params={"name": "bomb.json"}, content=content)
    assert answer.status_code == 400
    assert "too much memory" in answer.json()["error"]
    assert "datasets/bomb.json" in answer.json()["error"]
    assert memory_of_this_process() - before < 300 * 1024 * 1024


@pytest.mark.parametrize("piece", ["{},", "[],", '"ab",', "1.5,"])
def test_a_body_that_unfolds_is_refused_before_it_is_parsed(world, piece):
    content = b'{"chunks":[' + piece.encode() * (json_size.MOST_VALUES + 1) + b"{}]}"
    with world.client(world.key) as client:
        corpus = client.post("/v1/corpora", json={"name": f"b{piece}"}).json()["id"]
        before = memory_of_this_process()
        headers = {"Content-Type": "application/json"}
        answer = client.post(f"/v1/corpora/{corpus}/chunks", content=content, headers=headers)
    assert answer.status_code == 413
    assert "too many values" in answer.json()["error"]
    assert memory_of_this_process() - before < 4 * len(content) + 50 * 1024 * 1024


def test_ordinary_files_are_read_as_before(world, tmp_path):
    rows = [{"prompt": f"What is {n} + 1?", "ground_truth": str(n + 1), "at": n} for n in range(40)]
    with world.client(world.key) as client:
        made = client.post("/v1/datasets", params={"name": "good.json"}, content=json.dumps(rows).encode())
        assert made.status_code == 201, made.text
        assert (made.json()["rows"], made.json()["usable"]) == (40, 40)
        seen = client.get("/v1/datasets/preview", params={"path": "datasets/good.json", "limit": 3}).json()
        assert seen["sample"] == rows[:3]
        bad = client.post("/v1/datasets", params={"name": "bad.json"}, content=b'[{"a": 1}, {"a":')
        assert bad.status_code == 400
        assert "datasets/bad.json" in bad.json()["error"]
    assert rows_child.MEMORY_BYTES <= 2**30
