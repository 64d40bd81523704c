"""Datasets over the wire: stored as they are, refused in the SDK's words, added to, removed."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import one_off_jobs
from benchmax.platform.store.runs import evals
from benchmax.platform.store.tables import Audit, Blob, OneOffJob
from benchmax.platform.store.uploads import unused_blobs
from benchmax.platform.store.uploads.blobs import BlobStore
from platform_world import LiveServer, make_run

CSV = "prompt,ground_truth\n" + "".join(f'"{n} + 1?",{n + 1}\n' for n in range(20))


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live"), body_bytes=200_000) as server:
        yield server


@pytest.fixture
def client(live):
    with live.client(live.user("data@example.org")[1]) as client:
        yield client


@pytest.fixture
def stranger(live):
    with live.client(live.user("stranger@example.org")[1]) as client:
        yield client


def create(client, name, content, **params):
    return client.post("/v1/datasets", params={"name": name, **params}, content=content)


def listed(client):
    return {each["path"]: each for each in client.get("/v1/datasets").json()["datasets"]}


def test_a_file_is_stored_and_previewed(client, stranger):
    answer = create(client, "my rows/../a.csv", CSV)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert (found["path"], found["rows"], found["usable"], found["errors"]) == ("datasets/my-rows-..-a.csv", 20, 20, 0)
    assert found["sample"][0] == {"prompt": "0 + 1?", "ground_truth": "1"}
    assert listed(client)[found["path"]]["rows"] == 20
    assert listed(stranger) == {}
    assert stranger.get("/v1/datasets/preview", params={"path": found["path"]}).status_code == 404


@pytest.mark.parametrize("kind", ["jsonl", "ndjson", "json", "tsv"])
def test_every_kind_of_text_file(client, kind):
    rows = [{"prompt": f"{n}?", "ground_truth": str(n)} for n in range(16)]
    texts = {
        "jsonl": "\n".join(map(json.dumps, rows)),
        "ndjson": "\n".join(map(json.dumps, rows)),
        "json": json.dumps(rows),
        "tsv": "prompt\tground_truth\n" + "\n".join("\t".join(row.values()) for row in rows),
    }
    answer = create(client, f"a.{kind}", texts[kind])
    assert (answer.status_code, answer.json().get("usable")) == (201, 16), answer.text


def test_too_few_rows_are_refused_in_the_sdks_words(client):
    answer = create(client, "few.csv", "prompt,ground_truth\na,b\n")
    assert answer.status_code == 400
    assert "needs at least 16 training rows; there are 1. Add 15 or more" in answer.json()["error"]
    assert "datasets/few.csv" not in listed(client)
    mixed = create(client, "mixed.csv", "prompt,ground_truth\n" + "a,b\n" * 10 + ",c\n" * 10)
    assert (mixed.status_code, "there are 10" in mixed.json()["error"]) == (400, True)


def test_rows_with_other_columns_are_taken_and_judged_by_their_environment(client):
    rows = "\n".join(json.dumps({"question": f"{n} + 1?", "ground_truth": n + 1}) for n in range(20))
    known = create(client, "q.jsonl", rows).json()
    assert (known["rows"], known["usable"], known["environment"]) == (20, 20, "arithmetic")
    assert create(client, "q.jsonl", rows, environment="arithmetic").json()["usable"] == 20
    unknown = create(client, "r.jsonl", rows.replace("question", "riddle")).json()
    assert (unknown["rows"], unknown["usable"], unknown["environment"]) == (20, 0, None)
    first = unknown["issues"][0]
    assert (first["row"], first["severity"]) == (1, "error")
    assert "→" in first["message"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pkl", CSV, "must end in"),
        ("noend", CSV, "must end in"),
        ("jsonl", CSV, "before its suffix"),
        ("数据.CSV", CSV, "'数据.CSV' has no letter from a to z"),
        ("a.jsonl", "not json\n" * 20, "cannot be read"),
        ("a.json", "[1, 2", "a.json"),
        ("a.parquet", "nothing", "a.parquet"),
        ("a.csv", "", "16 training rows; there are 0"),
    ],
)
def test_what_cannot_be_read_is_refused(client, name, content, words):
    answer = create(client, name, content)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert "/blobs/" not in answer.json()["error"]


def test_a_body_that_is_too_large_is_refused(client):
    assert create(client, "big.csv", CSV + "x" * 300_000).status_code == 413


def test_a_row_is_added_as_a_new_version(client, stranger, live):
    create(client, "grow.csv", CSV)
    row = {"prompt": "new?", "ground_truth": "yes", "n": 1}
    body = {"path": "datasets/grow.csv", "row": row}
    assert stranger.post("/v1/datasets/rows", json=body).status_code == 404
    assert client.post("/v1/datasets/rows", json=body).json() == {"path": "datasets/grow.jsonl", "rows": 21}
    more = client.post("/v1/datasets/rows", json={"path": "datasets/grow.jsonl", "row": row})
    assert more.json() == {"path": "datasets/grow.jsonl", "rows": 22}
    assert client.post("/v1/datasets/rows", json=body).json()["rows"] == 23, "the old name adds to the new file"
    preview = client.get("/v1/datasets/preview", params={"path": "datasets/grow.jsonl", "limit": 200}).json()
    assert preview["sample"][-1] == row
    assert listed(client)["datasets/grow.csv"]["rows"] == 20
    assert client.post("/v1/datasets/rows", json={"path": "datasets/grow.jsonl", "row": [1]}).status_code == 400
    bad = {"path": "datasets/grow.jsonl", "row": {"a": "\ud800"}}
    assert client.post("/v1/datasets/rows", content=json.dumps(bad)).status_code == 400


def test_a_row_can_begin_a_dataset(client, stranger):
    body = {"path": "my turns.jsonl", "row": {"prompt": "new?", "ground_truth": "yes"}, "create": True}
    made = client.post("/v1/datasets/rows", json=body)
    assert (made.status_code, made.json()) == (201, {"path": "datasets/my-turns.jsonl", "rows": 1})
    again = client.post("/v1/datasets/rows", json=body)
    assert (again.status_code, "Choose it to add the row" in again.json()["error"]) == (409, True)
    more = client.post("/v1/datasets/rows", json={**body, "path": made.json()["path"], "create": False})
    assert more.json()["rows"] == 2
    assert stranger.post("/v1/datasets/rows", json=body).status_code == 201, "names are one's own"
    assert client.post("/v1/datasets/rows", json={**body, "path": "../x.exe"}).status_code == 400


def test_a_large_file_is_not_written_anew_for_one_row(client, monkeypatch):
    create(client, "large.csv", CSV)
    monkeypatch.setattr("benchmax.platform.server.services.datasets.dataset_files.GROWN_BYTES", 10)
    answer = client.post("/v1/datasets/rows", json={"path": "datasets/large.csv", "row": {"prompt": "a"}})
    assert (answer.status_code, "too large" in answer.json()["error"]) == (400, True)


def test_rows_added_at_once_are_all_there(live, client):
    create(client, "both.jsonl", "\n".join(json.dumps({"prompt": str(n)}) for n in range(16)))

    def add(n):
        with live.client(live.user("data@example.org")[1]) as other:
            answers.append(other.post("/v1/datasets/rows", json={"path": "datasets/both.jsonl", "row": {"n": n}}))

    answers = []
    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    good = [answer for answer in answers if answer.status_code == 201]
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert listed(client)["datasets/both.jsonl"]["rows"] == 16 + len(good)


def test_a_removed_dataset_is_gone_and_its_file_goes_when_nothing_uses_it(client, stranger, live):
    path = create(client, "gone.csv", CSV + "one more,1\n").json()["path"]
    create(client, "other.csv", CSV + "one more,1\n")
    sha256 = listed(client)[path]["sha256"]
    store = BlobStore(live.data.blobs)
    os.utime(store.path(sha256), (time.time() - 3600,) * 2)
    assert stranger.delete("/v1/datasets", params={"path": path}).status_code == 404
    assert client.delete("/v1/datasets", params={"path": path}).status_code == 200
    assert path not in listed(client)
    assert store.path(sha256).exists()  # the other name
    client.delete("/v1/datasets", params={"path": "datasets/other.csv"})
    assert not store.path(sha256).exists()
    assert client.delete("/v1/datasets", params={"path": path}).status_code == 404
    with live.database.read() as session:
        assert session.get(Blob, sha256) is None
        deeds = {row.action for row in session.query(Audit)}
    assert {"dataset.create", "dataset.append", "dataset.delete"} <= deeds


def test_a_file_a_run_was_launched_with_stays(client, live):
    path = create(client, "used.csv", CSV + "two more,1\n").json()["path"]
    sha256 = listed(client)[path]["sha256"]
    with live.database.write() as session:
        make_run(session, "data@example.org", blobs={"train_dataset_path": sha256})
    store = BlobStore(live.data.blobs)
    os.utime(store.path(sha256), (time.time() - 3600,) * 2)
    assert client.delete("/v1/datasets", params={"path": path}).status_code == 200
    assert store.path(sha256).exists()


def test_a_file_that_queued_work_needs_stays_until_it_is_done(client, live):
    """An examination that no runner has begun, and an evaluation by another environment's rewards."""
    store = BlobStore(live.data.blobs)

    def delete(name):
        path = create(client, name, CSV + f"{name},1\n").json()["path"]
        file = store.path(listed(client)[path]["sha256"])
        os.utime(file, (time.time() - 3600,) * 2)
        return path, file

    rows, rows_file = delete("examined.csv")
    client.post("/v1/environments/arithmetic/doctor", json={"datasetPath": rows})
    scored, scored_file = delete("scored.csv")
    with live.database.write() as session:
        run = make_run(session, "data@example.org")
        score = evals.create(
            session, run.id, model="rescore", options={"environment": {"env_cls_path": scored_file.name}}
        )
    for path in (rows, scored):
        assert client.delete("/v1/datasets", params={"path": path}).status_code == 200
    assert rows_file.exists()
    assert scored_file.exists()
    with live.database.write() as session:
        for job in session.query(OneOffJob):
            one_off_jobs.set_status(session, job.id, "complete")
        evals.set_progress(session, score.id, status="complete")
        unused_blobs.sweep(session, store)
    assert not rows_file.exists()
    assert not scored_file.exists()


def test_a_dataset_remembers_the_environment_it_was_used_with(client, stranger):
    both = "prompt,question,ground_truth\n" + "".join(f"{n} + 1?,{n} + 1?,{n + 1}\n" for n in range(20))
    path = create(client, "sums_.csv", both).json()["path"]

    def reader():
        return client.get("/v1/datasets/preview", params={"path": path}).json()["environment"]

    assert reader() is None
    args = {"environment": "arithmetic", "dataset_path": path, "eval_share": 0.2}
    refused = client.post("/v1/train/runs/launch", json={"args": args | {"max_steps": "many"}})
    assert refused.status_code == 400, "a run that was not launched says nothing"
    assert reader() is None
    launched = client.post("/v1/train/runs/launch", json={"args": args})
    assert launched.status_code == 201, launched.text
    assert reader() == "arithmetic"
    asked = client.get("/v1/datasets/preview", params={"path": path, "environment": ""}).json()
    assert asked["environment"] is None, "what is asked for is shown"
    assert create(stranger, "sums_.csv", both).json()["environment"] is None, "another user's file of that name"


def test_refused_files_are_swept(client, live):
    create(client, "swept.csv", "prompt\nonly this\n")
    store = BlobStore(live.data.blobs)
    with live.database.read() as session:
        nameless = [row.sha256 for row in session.query(Blob) if row.size == len("prompt\nonly this\n")]
    assert len(nameless) == 1
    os.utime(store.path(nameless[0]), (time.time() - 3600,) * 2)
    with live.database.write() as session:
        unused_blobs.sweep(session, store)
    assert not store.path(nameless[0]).exists()


def test_what_a_killed_server_wrote_without_a_row_is_swept(tmp_path):
    """Only what this database could have known: not what came just now, nor what was there before its first blob."""
    data = DataDir(tmp_path).create()
    store = BlobStore(data.blobs)
    now, day = time.time(), 86_400

    def write(days_old):
        with store.receive() as incoming:
            incoming.write(f"{days_old} days old".encode())
            sha256 = incoming.keep()
        os.utime(store.path(sha256), (now - days_old * day,) * 2)
        return sha256

    known, cut_off, young, foreign = write(9), write(5), write(0.5), write(20)
    database = open_database(data)
    try:
        with database.write() as session:
            unused_blobs.sweep(session, store)  # an empty database is not the one these belong to
        assert store.path(cut_off).exists()
        with database.write() as session:
            session.add(Blob(sha256=known, size=10, created=now - 9 * day))
            make_run(session, blobs={"train_dataset_path": known})
            unused_blobs.sweep(session, store)
    finally:
        database.close()
    assert [each for each in (known, cut_off, young, foreign) if store.path(each).exists()] == [known, young, foreign]
