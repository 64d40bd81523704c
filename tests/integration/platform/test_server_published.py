"""What published clients ask of a launch: what could not run is refused by name, and what can is taken."""

import base64
import json
import pickle
import sys
import uuid

import cloudpickle
import pytest

from benchmax.bundle import dump_bundle
from benchmax.platform.client import StorageClient
from session_world import CounterEnv

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ROWS = "".join(json.dumps({"prompt": f"{n}?", "answer": str(n)}) + "\n" for n in range(20)).encode()


@pytest.fixture(scope="module")
def key(live):
    return live.user()[1]


@pytest.fixture
def launch(live, key):
    def launch(pickled, manifest, rows=ROWS, held_out=ROWS, **args):
        envs, rows_at = (f"{kind}/A try: its name (é), as given/1" for kind in ("envs", "datasets"))
        files = {
            "env_cls_path": (f"{envs}/env-cls.pkl", pickled, "application/octet-stream"),
            "env_metadata_path": (f"{envs}/env-metadata.json", json.dumps(manifest).encode(), "application/json"),
            "train_dataset_path": (f"{rows_at}/train.jsonl", rows, "application/jsonl"),
            "eval_dataset_path": (f"{rows_at}/eval.jsonl", held_out, "application/jsonl"),
        }
        with StorageClient(key, live.url) as storage:
            paths = {name: storage.upload_file(*file)["blobPath"] for name, file in files.items()}
        with live.client(key) as client:
            return client.post("/v1/train/runs/launch", json={"args": {**paths, **args}})

    return launch


def manifest(**more):
    return {"pip_dependencies": [], "python_version": HERE, "benchmax_version": "0.1.2.dev34",
            "env_class_source": None, **more}  # fmt: skip


def test_a_launch_names_what_the_environment_needs_and_the_platform_lacks(launch):
    pickled = pickle.dumps(("an environment", {}))[:-1] + b"cbenchmax.rag.corpus.postgres\nPostgresSearch\n0."
    refused = launch(pickled, manifest())
    assert refused.status_code == 400
    assert "uses benchmax.rag.corpus.postgres.PostgresSearch, which this benchmax" in refused.json()["error"]
    refused = launch(b"no pickle", manifest())
    assert (refused.status_code, "not a readable pickle" in refused.json()["error"]) == (400, True)
    refused = launch(dump_bundle(CounterEnv).pickled, manifest(pip_dependencies=["castform"]))
    assert "needs castform, which brings a benchmax of its own" in refused.json()["error"]
    assert launch(dump_bundle(CounterEnv).pickled, manifest()).status_code == 201


def test_so_does_a_rollout(live, key):
    pickled = pickle.dumps(("an environment", {}))[:-1] + b"cbenchmax.traces.pipeline\nTracesPipeline\n0."
    env = {"env_cls_bytes": pickled, "env_metadata_bytes": json.dumps(manifest()).encode()}
    env = {name: base64.b64encode(value).decode() for name, value in env.items()}
    with live.client(key) as client:
        refused = client.post("/v1/rollout/stream", json={"raw_example": {"prompt": "?"}, "env": env})
    assert refused.status_code == 400
    assert "uses benchmax.traces.pipeline.TracesPipeline" in refused.json()["error"]


def test_a_python_that_is_installed_but_on_no_path_is_taken(launch, tmp_path, monkeypatch):
    refused = launch(dump_bundle(CounterEnv).pickled, manifest(python_version="3.98"))
    assert "install python3.98 on the server" in refused.json()["error"]
    folder = tmp_path / "versions" / "3.98.0" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3.98").touch(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert launch(dump_bundle(CounterEnv).pickled, manifest(python_version="3.98")).status_code == 201


def test_runs_of_one_environment_are_recognised_however_often_it_is_packed(live, key, launch):
    """cloudpickle packs a class into other bytes in every process; here its random id is another."""
    packed = dump_bundle(CounterEnv).pickled
    [old] = [id for id in cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID if id.encode() in packed]
    again = packed.replace(old.encode(), uuid.uuid4().hex.encode())
    other = packed.replace(b"Count.", b"Kount.")
    digests = []
    for pickled, rows in ((packed, ROWS), (again, ROWS), (other, ROWS), (packed, ROWS + ROWS)):
        run = launch(pickled, manifest(), rows).json()["runId"]
        with live.client(key) as client:
            digests.append(client.get(f"/v1/train/runs/{run}").json()["taskDigest"])
    first, second, changed, rows = digests
    assert first == second
    assert len({first, changed, rows}) == 3
