"""Environments over the wire: listed, shown, examined by the doctor in a child, launched by their id."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from sqlalchemy import delete

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.catalogue import BUILT_IN
from benchmax.platform.client import TrainerClient
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.server.services import catalogue
from benchmax.platform.store.queue import one_off_jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import OneOffJob
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.training_run import upload_training_run
from runner_world import drive
from training_world import store_tiny

ROWS = [{"prompt": f"{n} + 1?", "ground_truth": str(n + 1)} for n in range(40)]


class Adder(BaseEnv):
    """Adds one.

    More words.
    """

    system_prompt = "Add."

    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        raise AssertionError

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(messages[-1]["content"].strip() == task["ground_truth"])}


@pytest.fixture(scope="module")
def key(live):
    return live.user("env@example.org")[1]


@pytest.fixture
def stranger(live):
    with live.client(live.user("stranger@example.org")[1]) as client:
        yield client


@pytest.fixture(scope="module")
def uploaded(live, key):
    return upload_training_run(
        env_class=Adder, train_dataset=ROWS[:30], eval_dataset=ROWS[30:], run_name="adder", api_key=key,
        base_url=live.url,
    )  # fmt: skip


@pytest.fixture
def boss(live):
    supervisor = Supervisor(live.database, live.data, slots=["cpu:0"])
    yield supervisor
    supervisor.stop()
    drive(supervisor, lambda: not supervisor.watched)


def adder(client):
    (found,) = (each for each in client.get("/v1/environments").json()["environments"] if each["kind"] == "bundle")
    return found


def test_built_in_and_uploaded_environments_are_listed_once(client, uploaded, live, key):
    upload_training_run(
        env_class=Adder, train_dataset=ROWS[:30], eval_dataset=ROWS[30:], run_name="again", api_key=key,
        base_url=live.url,
    )  # fmt: skip
    found = client.get("/v1/environments").json()["environments"]
    assert [each["id"] for each in found[:2]] == ["arithmetic", "calculator"]
    assert all(each["kind"] == "builtin" and each["bringsRows"] and each["description"] for each in found[:2])
    mine = adder(client)
    assert (mine["name"], mine["description"], mine["path"].split("/")[1]) == ("Adder", "Adds one.", "again")


def test_the_source_is_shown_and_nothing_is_opened(client, uploaded):
    found = client.get(f"/v1/environments/{adder(client)['id']}").json()
    assert "class Adder(BaseEnv)" in found["files"][0]["text"]
    assert found["manifest"]["sha256"] == found["digest"]
    assert "env_class_source" not in found["manifest"]
    assert found["problems"] == []
    shown = client.get("/v1/environments/arithmetic").json()
    assert "class ArithmeticEnv" in "".join(file["text"] for file in shown["files"])


def test_built_ins_tell_their_levels_and_tools_before_anybody_looked(client):
    listed = {each["id"]: each for each in client.get("/v1/environments").json()["environments"]}
    assert listed["code"]["datasets"] == ["lines", "steps", "cases", "algorithms"]
    assert listed["calculator"]["tools"] == ["calculate"]
    assert client.get("/v1/environments/math").json()["tools"] == ["calculate"]


def test_the_doctor_finds_nothing_in_code_where_it_is_sandboxed_itself(client, boss):
    report = examine(client, boss, "code", {})
    assert (report["status"], report["ok"]) == ("complete", True), report
    assert [each for each in report["findings"] if each["severity"] in ("error", "warning")] == []


def test_another_users_environment_is_not_there(client, stranger, uploaded):
    mine = adder(client)["id"]
    assert stranger.get(f"/v1/environments/{mine}").status_code == 404
    assert stranger.post(f"/v1/environments/{mine}/doctor", json={}).status_code == 404
    assert stranger.get(f"/v1/environments/{mine}/doctor").status_code == 404
    assert {each["kind"] for each in stranger.get("/v1/environments").json()["environments"]} == {"builtin"}
    launch = {"args": {"environment": mine, "dataset_path": uploaded.train_dataset_path}}
    assert stranger.post("/v1/train/runs/launch", json=launch).status_code == 404


def examine(client, boss, environment, body):
    started = client.post(f"/v1/environments/{environment}/doctor", json=body)
    assert started.status_code == 201, started.text
    address = f"/v1/environments/{environment}/doctor/{started.json()['reportId']}"
    assert client.get(address).json()["status"] == "queued"
    drive(boss, lambda: client.get(address).json()["status"] in ("complete", "failed"), 240)
    return client.get(address).json()


def test_the_doctor_examines_a_bundle_in_a_child(client, stranger, boss, uploaded, live):
    mine = adder(client)["id"]
    report = examine(client, boss, mine, {"datasetPath": uploaded.train_dataset_path})
    assert report["status"] == "complete", report
    assert report["rows"] == 30
    assert report["tools"] == []
    assert {each["state"] for each in report["checks"]} <= {"passed", "error", "warning", "info", "skipped"}
    assert any(each["probe"] == "gold" for each in report["answers"])
    assert all(each["message"] and each["severity"] for each in report["findings"])
    assert adder(client)["tools"] == []
    assert client.get(f"/v1/environments/{mine}/doctor").json()["reports"][0]["id"] == report["id"]
    assert stranger.get(f"/v1/environments/{mine}/doctor/{report['id']}").status_code == 404
    assert list((live.data.root / "one_off_jobs").iterdir()) == []


def test_a_run_tells_what_the_doctor_found_in_its_environment(client, stranger, live, uploaded):
    from dataclasses import asdict

    launched = client.post("/v1/train/runs/launch", json={"args": asdict(uploaded)}).json()["runId"]
    address, mine = f"/v1/train/runs/{launched}/doctor", adder(client)["id"]
    with live.database.write() as session:
        session.execute(delete(OneOffJob))
    nothing = {"environment": mine, "datasetPath": uploaded.train_dataset_path, "report": None, "sameRows": False}
    assert client.get(address).json() == nothing
    finding = {"check": "always_pays", "severity": "error", "title": "An empty answer is paid.", "fix": "Do not.",
               "evidence": ""}  # fmt: skip

    def reported(path, **result):
        body = {"datasetPath": path}
        made = client.post(f"/v1/environments/{mine}/doctor", json=body).json()["reportId"]
        with live.database.write() as session:
            one_off_jobs.set_status(session, made, "complete", result={"ok": False, "findings": [finding], **result})
        return made

    on_these = reported(uploaded.train_dataset_path)
    reported(uploaded.eval_dataset_path)
    found = client.get(address).json()
    assert (found["report"]["id"], found["sameRows"]) == (on_these, True), "the newest is on other rows"
    assert [each["title"] for each in found["report"]["findings"]] == ["An empty answer is paid."]
    assert stranger.get(address).status_code == 404
    client.patch(f"/v1/train/runs/{launched}", json={"isPublic": True})
    assert stranger.get(address).status_code == 404, "whoever has the link sees the run, not its environment"
    built_in = client.post("/v1/train/runs/launch", json={"args": {"environment": "arithmetic"}}).json()["runId"]
    assert client.get(f"/v1/train/runs/{built_in}/doctor").json()["environment"] == "arithmetic"


@pytest.mark.slow
def test_the_doctor_lets_a_model_try(client, boss, uploaded, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    store_tiny(tmp_path, "tiny", context=128)  # which ends its answers soon
    mine, rows = adder(client)["id"], uploaded.train_dataset_path
    report = examine(client, boss, mine, {"datasetPath": rows, "model": "tiny"})
    assert (report["status"], report["model"]) == ("complete", "tiny"), report
    signal = report["signal"]
    assert (signal["groups"], signal["samples"], signal["gold"]) == (8, 8, 1.0)
    assert (signal["learns"], signal["spread"], signal["reward"]) == (False, 0.0, 0.0)
    assert 0 <= signal["chance"] < 1e-3
    assert signal["forecast"] == "No group in 8 had signal: GRPO will not move it."


def test_the_doctor_needs_rows_and_says_so(client, boss, uploaded):
    report = examine(client, boss, adder(client)["id"], {})
    assert report["status"] == "failed"
    assert "no rows of its own" in report["statusReason"]
    missing = client.post(f"/v1/environments/{adder(client)['id']}/doctor", json={"datasetPath": "datasets/none.csv"})
    assert missing.status_code == 404


def test_a_model_that_is_not_here_cannot_try(client):
    unknown = client.post("/v1/environments/arithmetic/doctor", json={"model": "gone"})
    assert unknown.status_code == 400
    assert "There is no model 'gone' here. Choose one of:" in unknown.json()["error"]


def test_a_built_in_is_examined_on_its_own_rows(client, boss):
    report = examine(client, boss, "calculator", None)
    assert (report["status"], report["tools"], report["ok"]) == ("complete", ["calculate"], True)


def test_two_examinations_at_a_time(live):
    with live.client(live.user("busy@example.org")[1]) as client:
        for _ in range(2):
            assert client.post("/v1/environments/arithmetic/doctor").status_code == 201
        refused = client.post("/v1/environments/arithmetic/doctor")
    assert refused.status_code == 429
    assert "Two examinations are running" in refused.text


def test_launch_by_environment_and_one_dataset(client, uploaded, live):
    rows = client.get("/v1/datasets").json()["datasets"]
    assert {each["path"] for each in rows} >= {uploaded.train_dataset_path, uploaded.eval_dataset_path}
    args = {"environment": adder(client)["id"], "dataset_path": uploaded.train_dataset_path, "eval_share": 0.25}
    launched = client.post("/v1/train/runs/launch", json={"args": args})
    assert launched.status_code == 201, launched.text
    with live.database.read() as session:
        run = runs.get(session, launched.json()["runId"])
    store = BlobStore(live.data.blobs)
    parts = {
        name: store.path(run.blobs[f"{name}_dataset_path"]).read_bytes().splitlines() for name in ("train", "eval")
    }
    assert (len(parts["train"]), len(parts["eval"])) == (22, 8)
    assert not set(parts["train"]) & set(parts["eval"])
    assert run.asked == {}
    assert {each["path"] for each in client.get("/v1/datasets").json()["datasets"]} == {each["path"] for each in rows}


def test_launch_of_a_built_in_without_any_upload(client, live):
    body = {"args": {"environment": "arithmetic", "max_steps": 3}}
    launched = client.post("/v1/train/runs/launch", json=body)
    assert launched.status_code == 201, launched.text
    run_id = launched.json()["runId"]
    config = client.get(f"/v1/train/runs/{run_id}/config").json()
    assert [each["name"] for each in config["args"] if each["given"]] == ["max_steps"]
    assert client.get(f"/v1/train/runs/{run_id}").json()["name"] == "arithmetic"
    assert {each["id"] for each in client.get("/v1/environments").json()["environments"]} >= set(BUILT_IN)


def test_an_environment_without_its_rows_is_listed_all_the_same(client, tmp_path, monkeypatch):
    """Its corpus was not fetched; the others are not concerned."""
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    catalogue._counted.cache_clear()
    listed = {each["id"]: each for each in client.get("/v1/environments").json()["environments"]}
    catalogue._counted.cache_clear()
    assert set(listed) >= set(BUILT_IN)
    assert listed["wikipedia"]["bringsRows"] is False
    assert listed["search"]["ownRows"] == 640


def test_several_built_ins_are_launched_together(client, live):
    """Their bundle, their rows by weight, and each one's share held out; nothing but names of the catalogue."""
    name = "arithmetic=2,reasoning/gcd"
    launched = client.post("/v1/train/runs/launch", json={"args": {"environment": name}})
    assert launched.status_code == 201, launched.text
    with live.database.read() as db:
        run = runs.get(db, launched.json()["runId"])
        assert catalogue.of_run(db, run) == name
    store = BlobStore(live.data.blobs)
    train, held_out = (
        [json.loads(line)["env"] for line in store.path(run.blobs[f"{split}_dataset_path"]).read_bytes().splitlines()]
        for split in ("train", "eval")
    )
    assert Counter(train)["arithmetic"] == pytest.approx(2 * Counter(train)["gcd"], abs=2)
    assert Counter(held_out)["arithmetic"] == pytest.approx(2 * Counter(held_out)["gcd"], abs=2)
    assert client.get("/v1/environments/arithmetic,calculator").json()["ownRows"] > 100
    for wrong in ("arithmetic,main.py:Evil", "arithmetic,/etc/x.py", "arithmetic=x,calculator", "reasoning/none"):
        refused = client.post("/v1/train/runs/launch", json={"args": {"environment": wrong}})
        assert refused.status_code == 404, refused.text


def test_a_name_with_a_slash_is_found_and_examined(live, key, client):
    with TrainerClient(key, live.url) as trainer:
        for name in ("reasoning/gcd", "arithmetic=2,reasoning/gcd"):
            assert trainer.get_environment(name)["id"] == name
    started = client.post("/v1/environments/reasoning%2Fgcd/doctor")
    assert started.status_code == 201, started.text
    report = client.get(f"/v1/environments/reasoning%2Fgcd/doctor/{started.json()['reportId']}").json()
    assert (report["environment"], report["status"]) == ("reasoning/gcd", "queued")
    assert client.get("/v1/environments/reasoning%2Fgcd/doctor").json()["reports"] == [report]
    with live.database.write() as db:
        db.delete(db.get_one(OneOffJob, report["id"]))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"environment": "arithmetic", "env_cls_path": "x"}, "environment and env_cls_path"),
        ({"environment": "arithmetic", "eval_share": 2}, "from 0 to 0.9"),
        ({"environment": "arithmetic", "eval_share": "a"}, "from 0 to 0.9"),
        ({"environment": 3}, "must be the id"),
        ({"environment": "arithmetic", "dataset_path": 3}, "must be the path"),
        ({"environment": "arithmetic", "dataset_path": "x.jsonl"}, "no dataset at that path"),
        ({"environment": "nowhere"}, "no such environment"),
        ({"dataset_path": "x.jsonl"}, "no dataset at that path"),
        ({}, "env_cls_path is missing"),
    ],
)
def test_a_launch_that_names_it_wrong_is_refused(client, args, words):
    answer = client.post("/v1/train/runs/launch", json={"args": args})
    assert answer.status_code in (400, 404)
    assert words in answer.json()["error"]
