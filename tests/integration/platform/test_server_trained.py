"""What becomes of a checkpoint, with the real runner and a toy model: a file, a fork, new scores; supervised runs."""

from __future__ import annotations

import io
import json
import shutil
import tarfile

import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.platform.runner import supervisor as supervisor_module
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.server.services import models
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals, rollouts, runs
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.trainer.tiny_model import make_tiny
from platform_world import LiveServer, make_run
from runner_world import drive, end_all

pytestmark = pytest.mark.slow

EMAIL = "check@example.org"
ARGS = {"learning_rate": 1e-2, "tune": "lora", "group_size": 4, "max_new_tokens": 6, "max_turns": 1, "max_steps": 2,
        "num_epochs": 4, "eval_every": 1, "prompts_per_step": 2, "lora_rank": 4}  # fmt: skip


class DigitsEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = messages[-1]["content"]
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text)), "always": 0.5}


class LettersEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"digits": 2.0, "always": 0.5}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


@pytest.fixture(scope="module")
def live(tmp_path_factory, model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor_module, "HEARTBEAT_SECONDS", 0.1)
        patch.setattr(models, "local_names", lambda: ([str(model)], []))
        with LiveServer(tmp_path_factory.mktemp("live")) as server:
            yield server


@pytest.fixture(scope="module")
def boss(live):
    boss = Supervisor(live.database, live.data, slots=["cpu:0"])
    yield boss
    end_all(boss)


@pytest.fixture(scope="module")
def client(live):
    with live.client(live.user(EMAIL)[1]) as client:
        yield client


def keep(live, content):
    with BlobStore(live.data.blobs).receive() as incoming:
        incoming.write(content)
        return incoming.keep()


def finished(live, boss, run_id):
    def ended():
        with live.database.read() as session:
            return runs.get(session, run_id).ended is not None

    drive(boss, ended, 90)
    with live.database.read() as session:
        return runs.get(session, run_id)


@pytest.fixture(scope="module")
def run_id(live, boss, client, model):
    bundle = dump_bundle(DigitsEnv)
    lines = "".join(json.dumps({"prompt": f"{number}?"}) + "\n" for number in range(16)).encode()
    contents = {
        "env_cls_path": ("envs/d/1/env-cls.pkl", bundle.pickled),
        "env_metadata_path": ("envs/d/1/env-metadata.json", bundle.metadata.to_json_bytes()),
        "train_dataset_path": ("datasets/d/train.jsonl", lines),
        "eval_dataset_path": ("datasets/d/eval.jsonl", b"".join(lines.splitlines(True)[:4])),
    }
    args = {**ARGS, "model": str(model)}
    with live.database.write() as session:
        paths = {name: path for name, (path, _) in contents.items()}
        blobs = {name: keep(live, content) for name, (_, content) in contents.items()}
        run = make_run(session, EMAIL, args=args, asked=args, paths=paths, blobs=blobs, name="digits")
        jobs.enqueue(session, run.id)
    assert finished(live, boss, run.id).status == "complete", finished(live, boss, run.id).reason
    return run.id


def fetch(client, boss, run_id, name, format, wait=0):
    """Ask until it is there, with the runner at work."""
    answers = []

    def ready():
        answers.append(client.get(f"/v1/train/runs/{run_id}/checkpoints/{name}/download?format={format}&wait={wait}"))
        return answers[-1].status_code != 202

    drive(boss, ready, 60)
    return answers


@pytest.mark.parametrize("format", ["adapter", "merged"])
def test_a_checkpoint_is_downloaded_as_one_file(client, boss, run_id, live, format):
    first, *_, answer = fetch(client, boss, run_id, "latest", format)
    assert first.json()["status"] == "queued"
    assert first.headers["retry-after"]
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="digits-step-2-{format}.tar"'
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
        card = tar.extractfile(f"step-2-{format}/README.md").read().decode()
    weights = "adapter_model.safetensors" if format == "adapter" else "model.safetensors"
    assert {"README.md", weights} <= names
    assert "Held-out rows" in card
    assert "trained with GRPO on the environment `DigitsEnv`" in card
    assert str(live.data.root) not in card
    again = client.get(
        f"/v1/train/runs/{run_id}/checkpoints/step-2/download?format={format}", headers={"Range": "bytes=0-9"}
    )
    assert (again.status_code, again.content) == (206, answer.content[:10])
    with live.database.read() as session:
        assert len([job for job in jobs.of_run(session, run_id) if job.kind == "export"]) <= 2
    drive(boss, lambda: not boss.watched)
    assert list((live.data.root / "one_off_jobs").iterdir()) == []


def test_a_fork_begins_with_the_checkpoint_and_needs_its_parent_no_more(client, live, boss, run_id):
    body = {"checkpoint": "step-1", "args": {"max_steps": 1, "learning_rate": 1e-3}, "name": "second try"}
    answer = client.post(f"/v1/train/runs/{run_id}/fork", json=body)
    assert answer.status_code == 201, answer.text
    fork_id = answer.json()["runId"]
    parent = live.data.run(run_id)
    hidden = parent.with_name("hidden")
    parent.rename(hidden)
    try:
        run = finished(live, boss, fork_id)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
        hidden.rename(parent)
    assert (run.status, run.name, run.args["max_steps"], run.args["group_size"]) == ("complete", "second try", 1, 4)
    assert client.get(f"/v1/train/runs/{fork_id}/config").json()["parent"] == {"run_id": run_id, "checkpoint": "step-1"}
    # Its first evaluation, before any step, is the parent's at that checkpoint.
    scores = [
        client.get(f"/v1/train/runs/{each}/scalars?mode=eval").json()["reward/mean"] for each in (run_id, fork_id)
    ]
    assert scores[1][0]["value"] == pytest.approx(scores[0][1]["value"], abs=1e-4)
    again = client.post(f"/v1/train/runs/{fork_id}/fork", json={"checkpoint": "latest"})
    assert again.status_code == 201
    base = json.loads((live.data.run(again.json()["runId"]) / "parent" / "config.json").read_text())["model"]["name"]
    assert base.startswith(str(live.data.run(again.json()["runId"])))
    client.post(f"/v1/train/runs/{again.json()['runId']}/cancel")


def test_stored_rollouts_are_scored_again_by_another_environment(client, live, boss, run_id):
    bundle = dump_bundle(LettersEnv)
    with live.database.write() as session:
        from benchmax.platform.server.services.datasets import dataset_files

        owner = runs.get(session, run_id).owner_id
        for name, content in (("env-cls.pkl", bundle.pickled), ("env-metadata.json", bundle.metadata.to_json_bytes())):
            dataset_files.name(session, owner, f"envs/l/1/{name}", keep(live, content), len(content), None)
    found = client.get("/v1/environments").json()["environments"]
    (letters,) = (each["id"] for each in found if each["name"] == "LettersEnv")
    answer = client.post(f"/v1/train/runs/{run_id}/rescore", json={"environment": letters})
    assert answer.status_code == 201, answer.text
    eval_id = answer.json()["id"]

    def done():
        with live.database.read() as session:
            return evals.get(session, run_id, eval_id).ended is not None

    drive(boss, done, 60)
    with live.database.read() as session:
        row = evals.get(session, run_id, eval_id)
        page = rollouts.page(session, run_id, split=evals.SPLIT, eval_id=eval_id)
        assert (row.status, row.done, row.total) == ("complete", len(page), len(page)), row.reason
        assert {each.components["digits"] for each in page} == {2.0}
        body = rollouts.read_body(live.data.run(run_id), page[0])
    assert body["messages"]
    summary = client.get(f"/v1/train/runs/{run_id}/rollouts/comparison/summary", params={"externalEvalId": eval_id})
    parts = {each["name"]: each for each in summary.json()["components"]}
    assert list(parts) == ["reward", "always", "digits"]
    assert (parts["always"]["delta"], parts["always"]["ciLow"], parts["always"]["ciHigh"]) == (0, 0, 0)
    assert (parts["digits"]["other"], parts["digits"]["label"]) == (2.0, "comparison leads")
    assert parts["digits"]["ciHigh"] < 0
    assert summary.json()["n"] == len(page)


# Supervised runs


def rows(count=20):
    return "\n".join(json.dumps({"prompt": f"{n % 10}?", "completion": str(n % 10)}) for n in range(count)).encode()


def test_a_supervised_run_learns_and_can_be_forked_onto_an_environment(client, live, boss, model, run_id):
    client.post("/v1/datasets", params={"name": "sft.jsonl"}, content=rows())
    body = {
        "name": "warm",
        "dataset": {"format": "jsonl", "path": "datasets/sft.jsonl"},
        "model": str(model),
        "args": {"num_epochs": 4, "learning_rate": 0.02, "prompts_per_step": 4, "tune": "full"},
        "eval": {"rows": 4},
    }
    answer = client.post("/v1/train/runs/sft", json=body)
    assert answer.status_code == 201, answer.text
    sft_id = answer.json()["runId"]
    run = finished(live, boss, sft_id)
    assert (run.status, run.total_steps, run.latest_step) == ("complete", 16, 15), run.reason
    train = [each["value"] for each in client.get(f"/v1/train/runs/{sft_id}/scalars?mode=train").json()["loss"]]
    held_out = [each["value"] for each in client.get(f"/v1/train/runs/{sft_id}/scalars?mode=eval").json()["loss"]]
    assert train[-1] < train[0] - 1
    assert held_out[1] < held_out[0] - 1
    merged = fetch(client, boss, sft_id, "best", "merged")[-1]
    assert merged.status_code == 200
    assert b"trained on given answers" in merged.content, "the model card knows that there was no environment"
    failed = fetch(client, boss, sft_id, "best", "adapter")[-1]
    assert (failed.status_code, "there is no adapter" in failed.json()["error"]) == (400, True)
    refused = client.post(f"/v1/train/runs/{sft_id}/external-eval", json={"model": "base"})
    assert (refused.status_code, "no environment" in refused.json()["error"]) == (400, True)
    assert client.post(f"/v1/train/runs/{sft_id}/fork", json={}).status_code == 400
    (digits,) = (
        each["id"] for each in client.get("/v1/environments").json()["environments"] if each["name"] == "LettersEnv"
    )
    args = {
        "environment": digits,
        "dataset_path": "datasets/sft.jsonl",
        **{k: v for k, v in ARGS.items() if k != "tune"},
    }
    forked = client.post(f"/v1/train/runs/{sft_id}/fork", json={"args": args})
    assert forked.status_code == 201, forked.text
    assert finished(live, boss, forked.json()["runId"]).status == "complete"
