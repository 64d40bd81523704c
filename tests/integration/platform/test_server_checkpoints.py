"""Checkpoints, forks, supervised runs and comparisons over the wire, without training: who may, what is refused."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from benchmax.platform.store.accounts import secrets as vault
from benchmax.platform.store.queue import jobs, one_off_jobs
from benchmax.platform.store.runs import evals, rollouts, runs
from benchmax.platform.store.tables import Secret
from platform_world import make_run

EMAIL = "check@example.org"


@pytest.fixture
def client(live):
    with live.client(live.user(EMAIL)[1]) as client:
        yield client


@pytest.fixture
def stranger(live):
    with live.client(live.user("stranger@example.org")[1]) as client:
        yield client


@pytest.fixture
def run_id(live, client):
    """A run with two checkpoints, whose rows are an upload."""
    client.post("/v1/datasets", params={"name": "sft.jsonl"}, content=rows())
    found = client.get("/v1/datasets").json()["datasets"]
    (sha256,) = (each["sha256"] for each in found if each["path"] == "datasets/sft.jsonl")
    parts = ("train_dataset_path", "eval_dataset_path")
    with live.database.write() as session:
        run = make_run(
            session, EMAIL, name="mine", args={"model": "m", "group_size": 4, "num_epochs": 1}, asked={"group_size": 4},
            paths=dict.fromkeys(parts, "datasets/sft.jsonl"), blobs=dict.fromkeys(parts, sha256),
        )  # fmt: skip
        vault.Vault(live.data).put(session, run.owner_id, "JUDGE", "its own secret", run.id)
    folder = live.data.run(run.id)
    for step in (1, 2):
        (folder / "checkpoints" / f"step-{step}").mkdir(parents=True)
        (folder / "checkpoints" / f"step-{step}" / "weights.safetensors").write_bytes(b"%d" % step)
    (folder / "checkpoints" / "latest").write_text("step-2")
    (folder / "checkpoints" / "step-3").symlink_to("/etc")
    (folder / "config.json").write_text(json.dumps({"model": {"name": "m"}}))
    (folder / "run.json").write_text("{}")
    return run.id


def rows(count=20):
    return "\n".join(json.dumps({"prompt": f"{n}?", "completion": str(n)}) for n in range(count)).encode()


def test_a_file_that_was_made_is_given_and_made_again_when_its_checkpoint_is_newer(client, live, run_id):
    address = f"/v1/train/runs/{run_id}/checkpoints/best/download?format=adapter&wait=0"
    file = live.data.run(run_id) / "exports" / "step-2-adapter.tar"
    file.parent.mkdir()
    file.write_bytes(b"a tar")
    assert client.get(address).content == b"a tar"
    os.utime(file, (time.time() - 60,) * 2)
    first, second = client.get(address), client.get(address)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == {"status": "queued", "statusReason": "waiting for the runner"}
    with live.database.read() as session:
        (job,) = (job for job in jobs.of_run(session, run_id) if job.kind == "export")
        assert job.slots == 0, "it does not wait for a training run"
    with live.database.write() as session:
        one_off_jobs.set_status(session, job.one_off_id, "failed", "no space")
        jobs.drop_queued(session, run_id)
    assert (client.get(address).status_code, "no space" in client.get(address).json()["error"]) == (400, True)


@pytest.mark.parametrize("settings", ["[]", "{}", '{"model": 5}', '{"model": {"name": 5}}', "{"])
def test_a_run_whose_settings_are_damaged_is_not_forked(client, live, run_id, settings):
    known = {path.name for path in live.data.runs.iterdir()}
    (live.data.run(run_id) / "config.json").write_text(settings)
    answer = client.post(f"/v1/train/runs/{run_id}/fork", json={})
    assert (answer.status_code, "checkpoint cannot be used" in answer.text) == (400, True), answer.text
    assert {path.name for path in live.data.runs.iterdir()} == known
    shown = client.get(f"/v1/train/runs/{run_id}/config")
    assert shown.status_code == 200
    assert not isinstance(shown.json()["settings"], list)


def test_others_and_missing_ones_are_not_there(client, stranger, live, run_id):
    part = f"/v1/train/runs/{run_id}/checkpoints"
    for path in (f"{part}/latest/download", f"/v1/train/runs/{run_id}/rollouts/comparison/summary?otherRunId={run_id}"):
        assert stranger.get(path).status_code == 404
    assert stranger.post(f"/v1/train/runs/{run_id}/fork", json={}).status_code == 404
    assert stranger.post(f"/v1/train/runs/{run_id}/rescore", json={}).status_code == 404
    for name in ("step-99", "step-3"):
        assert client.get(f"{part}/{name}/download").status_code == 404
        assert client.post(f"/v1/train/runs/{run_id}/fork", json={"checkpoint": name}).status_code == 404
    assert client.get(f"{part}/..%2F..%2Fx/download").status_code in (400, 404)
    assert client.post(f"/v1/train/runs/{run_id}/rescore", json={}).status_code == 400
    client.patch(f"/v1/train/runs/{run_id}", json={"isPublic": True})
    assert stranger.get(f"{part}/latest/download").status_code == 404
    assert stranger.post(f"/v1/train/runs/{run_id}/rescore").status_code == 403


def test_a_fork_has_its_own_names_for_what_it_needs(client, live, run_id):
    body = {"checkpoint": "step-1", "args": {"max_steps": 3, "kl": None}}
    answer = client.post(f"/v1/train/runs/{run_id}/fork", json=body)
    assert answer.status_code == 201, answer.text
    with live.database.read() as session:
        run = runs.get(session, answer.json()["runId"])
        secret = session.query(Secret).filter_by(run_id=run.id).one()
    assert (run.name, run.asked) == ("mine from step-1", {"group_size": 4, "max_steps": 3})
    assert (run.args["model"], run.args["group_size"], run.total_steps) == ("m", 4, 3)
    assert vault.Vault(live.data).reveal(secret) == "its own secret"
    linked = live.data.run(run.id) / "parent" / "checkpoints" / "step-1" / "weights.safetensors"
    assert linked.samefile(live.data.run(run_id) / "checkpoints" / "step-1" / "weights.safetensors")


def test_a_fork_onto_other_rows_is_a_launch_like_any_other(client, run_id):
    """It tells what a launch tells of few rows, and the dataset remembers the environment it was used with."""
    both = "prompt,question,ground_truth\n" + "".join(f"{n} + 1?,{n} + 1?,{n + 1}\n" for n in range(20))
    path = client.post("/v1/datasets", params={"name": "forked.csv"}, content=both).json()["path"]
    args = {"environment": "arithmetic", "dataset_path": path}
    answer = client.post(f"/v1/train/runs/{run_id}/fork", json={"args": args})
    assert answer.status_code == 201, answer.text
    assert [words for words in answer.json()["warnings"] if "Only 16 training rows" in words]
    assert client.get("/v1/datasets/preview", params={"path": path}).json()["environment"] == "arithmetic"


@pytest.mark.parametrize("name", ["latest", "best"])
def test_the_latest_is_the_last_that_is_whole(client, live, run_id, name):
    """As for a run that is resumed: the one that is marked was being replaced when the trainer was killed."""
    shutil.rmtree(live.data.run(run_id) / "checkpoints" / "step-2")
    assert client.get(f"/v1/train/runs/{run_id}/checkpoints/{name}/download?wait=0").status_code == 202
    forked = client.post(f"/v1/train/runs/{run_id}/fork", json={"checkpoint": name})
    assert client.get(f"/v1/train/runs/{forked.json()['runId']}").json()["name"] == "mine from step-1"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"args": {"model": "x"}}, "Leave `model` out"),
        ({"args": {"group_size": 1}}, "must be from 2"),
        ({"args": {"nonsense": 1}}, "no launch argument"),
        ({"checkpoint": "../x"}, "checkpoint"),
        ({"args": {"environment": "nowhere"}}, "no such environment"),
    ],
)
def test_a_fork_that_cannot_be_is_refused(client, run_id, body, words):
    answer = client.post(f"/v1/train/runs/{run_id}/fork", json=body)
    assert answer.status_code in (400, 404)
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": {"path": "datasets/none.jsonl"}}, "no dataset at that path"),
        ({"dataset": {"path": "datasets/bad.jsonl"}}, "Row 1 of datasets/bad.jsonl"),
        ({"dataset": {"path": "datasets/sft.jsonl", "digest": "0" * 64}}, "not the file its digest"),
        ({"eval": {"rows": 100}}, "Leave some"),
        ({"args": {"group_size": 0}}, "must be from"),
        ({"dataset": {"format": "xml", "path": "a"}}, "format"),
        ({"model": "no-such-model"}, "must be one of"),
    ],
)
def test_a_supervised_run_that_cannot_be_is_refused(client, change, words):
    client.post("/v1/datasets", params={"name": "sft.jsonl"}, content=rows())
    client.post("/v1/datasets", params={"name": "bad.jsonl"}, content=b'{"a": 1}\n' * 20)
    body = {"dataset": {"path": "datasets/sft.jsonl"}} | change
    answer = client.post("/v1/train/runs/sft", json=body)
    assert answer.status_code in (400, 404)
    assert words in answer.json()["error"]


def test_a_supervised_run_is_queued_on_its_rows_alone(client, live):
    client.post("/v1/datasets", params={"name": "sft.jsonl"}, content=rows())
    body = {
        "dataset": {"path": "datasets/sft.jsonl", "format": "jsonl"},
        "args": {"prompts_per_step": 4, "num_epochs": 2},
    }
    run_id = client.post("/v1/train/runs/sft", json=body | {"eval": {"rows": 4}}).json()["runId"]
    with live.database.read() as session:
        run = runs.get(session, run_id)
    assert (run.kind, run.name, run.total_steps, list(run.blobs)) == ("sft", "sft sft", 8, ["train_dataset_path"])
    refused = client.post(f"/v1/train/runs/{run_id}/external-eval", json={"model": "base"})
    assert "no environment" in refused.json()["error"]


# Comparison


def record(example, sample, step=0, **rewards):
    return {
        "id": f"{example}-{sample}-{step}-{sorted(rewards.items())}"[:80], "example_id": example, "sample": sample,
        "split": "eval", "step": step, "rewards": rewards, "reward": sum(rewards.values()),
        "messages": [{"role": "user", "content": "q"}],
    }  # fmt: skip


def index(session, run_id, records, **more):
    rollouts.index(session, run_id, [rollouts.row_of(each, file="x", offset=0, length=1, **more) for each in records])


def test_each_component_is_compared_in_pairs(client, live, run_id):
    with live.database.write() as session:
        other = evals.create(session, run_id, model="base")
        old = [record(f"e{n}", 0, a=9.0, b=9.0) for n in range(6)]
        ours = [record(f"e{n}", s, step=5, a=1.0 + n / 10, b=n % 2) for n in range(6) for s in (0, 1)]
        theirs = [record(f"e{n}", 0, a=0.5 + n / 10, b=n % 2, c=1.0) for n in range(1, 7)]
        index(session, run_id, old + ours)
        index(session, run_id, theirs, split=evals.SPLIT, eval_id=other.id)
    address = f"/v1/train/runs/{run_id}/rollouts/comparison"
    found = client.get(f"{address}/summary", params={"externalEvalId": other.id}).json()
    assert found["n"] == 5, "e0 and e6 are on one side only, and the step before is not counted"
    whole, a, b = found["components"]
    assert [each["name"] for each in (whole, a, b)] == ["reward", "a", "b"]
    assert (a["delta"], a["label"]) == (pytest.approx(0.5), "outperformed")
    assert a["ciLow"] == pytest.approx(0.5)
    assert (a["ours"], a["other"]) == (pytest.approx(1.3), pytest.approx(0.8))
    assert (b["delta"], b["label"], b["n"]) == (0.0, "no clear difference", 5)
    groups = client.get(address, params={"externalEvalId": other.id}).json()
    assert groups["modelGroups"][0]["components"] == {"a": 1.1, "b": 1.0}
    with live.database.write() as session:
        second = make_run(session, EMAIL).id
        index(session, second, [record("e1", 0, a=3.0, b=0.0)])
    found = client.get(f"{address}/summary", params={"otherRunId": second}).json()
    assert (found["n"], found["components"][1]["ciLow"], found["components"][1]["label"]) == (1, None, "closing in")
    beside = client.get(address, params={"otherRunId": second}).json()
    assert [each["components"] for each in beside["compGroups"]] == [{"a": 3.0, "b": 0.0}]
    assert [each["promptMessageId"] for each in beside["modelGroups"]] == ["e1"]
    assert client.get(address, params={"otherRunId": "x"}).status_code == 404
    assert client.get(f"{address}/summary").status_code == 400
    assert client.get(f"{address}/summary", params={"externalEvalId": "x"}).status_code == 404
    assert client.get(f"{address}/summary", params={"otherRunId": "x"}).status_code == 404


def test_nothing_shared_is_an_empty_comparison(client, live, run_id):
    with live.database.write() as session:
        other = make_run(session, EMAIL).id
    address = f"/v1/train/runs/{run_id}/rollouts/comparison/summary"
    assert client.get(address, params={"otherRunId": other}).json() == {"n": 0, "components": []}
