"""Requests that are right, and once were answered wrongly: what is asked for at a bad moment, or in an odd form."""

from __future__ import annotations

import errno
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import typer
from typer.testing import CliRunner

from benchmax.cli.platform import launch as launching
from benchmax.cli.platform.run_compare import compare
from benchmax.envs.loading import load_env_class
from benchmax.errors import UsageError
from benchmax.platform.client import TrainerClient
from benchmax.platform.exceptions import TrainerError
from benchmax.platform.sdk import credentials
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals, rollouts, runs
from benchmax.platform.store.uploads import blobs
from platform_world import make_run

EMAIL = "edges@example.org"


@pytest.fixture(scope="module")
def key(live):
    return live.user(EMAIL)[1]


@pytest.fixture
def run_id(live, key):
    with live.database.write() as session:
        run = make_run(session, EMAIL)
    live.data.run(run.id).mkdir()
    return run.id


def status_of(live, run_id):
    with live.database.read() as session:
        return runs.get(session, run_id).status


def enqueue(live, run_id):
    """A queued training job, and an evaluation that waits behind it."""
    with live.database.write() as session:
        jobs.enqueue(session, run_id)
        row = evals.create(session, run_id, model="base")
        jobs.enqueue(session, run_id, kind="eval", eval_id=row.id)
    return row.id


def states(live, run_id):
    with live.database.read() as session:
        return {job.kind: job.state for job in jobs.of_run(session, run_id)}


def test_an_evaluation_outlives_the_cancelling_of_its_run(live, client, run_id):
    enqueue(live, run_id)
    assert client.post(f"/v1/train/runs/{run_id}/cancel").json()["message"] == "The run is stopped."
    assert states(live, run_id) == {"train": "done", "eval": "queued"}


def test_a_run_that_waits_is_cancelled_while_it_is_evaluated(live, client, run_id):
    enqueue(live, run_id)
    with live.database.write() as session:
        for job in jobs.of_run(session, run_id):
            job.state = "leased" if job.kind == "eval" else job.state
    assert client.post(f"/v1/train/runs/{run_id}/cancel").json()["message"] == "The run is stopped."
    assert status_of(live, run_id) == "cancelled"
    assert states(live, run_id) == {"train": "done", "eval": "leased"}


@pytest.mark.parametrize("stamp", ["2024-99-99 00:00:00,000", "0000-01-01 00:00:00,000", "2024-01-01 25:61:61,999"])
def test_a_line_with_an_impossible_time_is_a_line(live, client, run_id, stamp):
    (live.data.run(run_id) / "child.log").write_text(f"env stdout: {stamp} INFO hello\n")
    found = client.get(f"/v1/train/runs/{run_id}/logs", params={"process": "child"})
    assert found.status_code == 200
    (line,) = found.json()["lines"]
    assert (line["approximate"], line["message"]) == (True, f"{stamp} INFO hello")


def test_a_feed_is_not_upset_by_an_odd_id(live, client, run_id):
    with live.database.write() as session:
        runs.set_status(session, run_id, "complete")
    headers = {"Last-Event-ID": "²".encode("latin-1")}
    with client.stream("GET", f"/v1/train/runs/{run_id}/stream", headers=headers) as answer:
        assert answer.status_code == 200
        assert '"end"' in "".join(answer.iter_text())


def test_a_launch_argument_that_is_null_was_not_given(client):
    rows = "".join(json.dumps({"question": f"{n} + 0?", "ground_truth": str(n)}) + "\n" for n in range(40))
    path = client.post("/v1/datasets", params={"name": "nulls.jsonl"}, content=rows.encode()).json()["path"]
    unset = dict.fromkeys(("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path"))
    args = {**unset, "environment": "arithmetic", "dataset_path": path, "eval_share": None, "seed": None}
    launched = client.post("/v1/train/runs/launch", json={"args": args})
    assert launched.status_code == 201, launched.text


def test_a_fork_with_null_arguments_keeps_what_its_parent_had(live, client, run_id):
    stored = {name: f"datasets/{name}.jsonl" for name in ("train_dataset_path", "eval_dataset_path")}
    digests = {}
    with live.database.write() as session:
        run = runs.get(session, run_id)
        for name in stored:
            with live.app.state.services.blobs.receive() as incoming:
                incoming.write(b'{"prompt": "1", "ground_truth": "1"}\n' * 20)
                digests[name] = incoming.keep()
        run.paths, run.blobs = stored, digests
    folder = live.data.run(run_id)
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    (folder / "checkpoints" / "step-1" / "weights.safetensors").write_bytes(b"w")
    (folder / "config.json").write_text(json.dumps({"model": {"name": "smollm2-135m"}}))
    args = {"environment": None, "dataset_path": None, "train_dataset_path": None, "model": None, "seed": 3}
    forked = client.post(f"/v1/train/runs/{run_id}/fork", json={"checkpoint": "step-1", "args": args})
    assert forked.status_code == 201, forked.text
    with live.database.read() as session:
        assert runs.get(session, forked.json()["runId"]).paths == stored


def test_a_number_too_large_for_any_argument_is_refused(client):
    refused = client.post("/v1/train/runs/launch", json={"args": {"environment": "arithmetic", "seed": 10**400}})
    assert refused.status_code == 400
    assert "seed must be" in refused.json()["error"]


def test_a_secret_that_no_variable_can_hold_is_refused(client):
    refused = client.put("/v1/secrets/TOKEN", json={"value": "zero\0byte"})
    assert refused.status_code == 400
    assert "zero byte" in refused.json()["error"]
    assert client.put("/v1/secrets/TOKEN", json={"value": "many\nlines"}).status_code == 200


def test_a_full_disk_is_told_as_such(client, monkeypatch):
    def full(self, piece):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(blobs.Incoming, "write", full)
    refused = client.post("/v1/datasets", params={"name": "rows.csv"}, content=b"prompt,answer\n")
    assert refused.status_code == 507
    assert "No space left" in refused.json()["error"]


# From a terminal


def score(live, run_id, reward):
    record = {
        "id": f"{run_id[-8:]}-{reward}", "example_id": "e", "split": "eval", "step": 0, "reward": reward,
        "rewards": {"x": reward}, "messages": [{"role": "user", "content": "?"}], "completion_start": 1,
    }  # fmt: skip
    with live.database.write() as session:
        rollouts.index(session, run_id, [rollouts.row_of(record, file="rollouts/eval-0.jsonl", offset=0, length=1)])


def test_a_run_is_compared_with_one_that_was_archived(live, key, client, run_id, monkeypatch):
    with live.database.write() as session:
        other = make_run(session, EMAIL)
        other.archived = True
    score(live, run_id, 1.0)
    score(live, other.id, 0.0)
    monkeypatch.setenv("BENCHMAX_PLATFORM_URL", live.url)
    monkeypatch.setenv("BENCHMAX_API_KEY", key)
    app = typer.Typer()
    app.command()(compare)
    found = CliRunner().invoke(app, [run_id, other.id, "--json"], catch_exceptions=False)
    assert json.loads(found.stdout)["delta"] == 1.0
    with pytest.raises(UsageError, match="no eval or run"):
        CliRunner().invoke(app, [run_id, "nonsense"], catch_exceptions=False)


def test_a_run_whose_note_cannot_be_written_is_told_all_the_same(live, key, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHMAX_PLATFORM_URL", live.url)
    monkeypatch.setenv("BENCHMAX_API_KEY", key)
    (tmp_path / ".castform").write_text("a file is in the way")
    rows = [{"question": f"{n} + 0?", "ground_truth": str(n)} for n in range(20)]
    project = launching.Project(load_env_class("arithmetic"), {}, rows, rows[:2], tmp_path, "noted", [])
    with TrainerClient() as trainer:
        told = launching._start(project, trainer, {})
        assert trainer.get_run(told["runId"])["name"] == "noted"
    assert told["manifest"] is None
    assert "No note of this run" in told["warnings"][-1]


def test_signing_in_where_no_platform_is_ends_in_words(tmp_path, monkeypatch):
    import http.server
    import threading

    class Page(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Welcome</html>")

        def log_message(self, *_):
            pass

    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(tmp_path / "credentials.json"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(TrainerError, match="Check the address"):
            credentials.login(f"http://127.0.0.1:{server.server_port}", say=lambda _: None)
        server.shutdown()
    with pytest.raises(TrainerError, match="Check the"):
        credentials.login("http://[nowhere", say=lambda _: None)
    with pytest.raises(TrainerError, match="Check"), TrainerClient("sk_x", "http://[nowhere") as nowhere:
        nowhere.list_runs()


def test_one_name_asked_for_at_once_is_given_once(live, key):
    def add(_):
        with live.client(key) as client:
            body = {"name": "the same", "baseUrl": "https://models.example/v1", "model": "m"}
            return client.post("/v1/endpoints", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(add, range(8)))
    assert codes[0] == 201
    assert set(codes[1:]) <= {400, 409}
