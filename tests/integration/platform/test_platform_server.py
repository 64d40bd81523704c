"""The SDK against a real server: upload, launch, read, follow, sign in."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from dataclasses import asdict, fields

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.errors import DatasetError, UsageError
from benchmax.net import ports
from benchmax.platform.client import (
    AsyncTrainerClient,
    LaunchArgSpec,
    RolloutClient,
    StorageClient,
    TrainerClient,
)
from benchmax.platform.daemon.control import sign_in_link
from benchmax.platform.daemon.options import Options
from benchmax.platform.exceptions import (
    AuthenticationError,
    JobLaunchError,
    RolloutNotFound,
    TrainerError,
)
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.auto_start import local_url
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import events, rollouts, runs
from benchmax.platform.store.runs import metrics as points
from benchmax.platform.store.uploads import blobs
from benchmax.platform.training_run import UploadedTrainingRun, upload_training_run
from platform_world import LiveServer

ROWS = [{"prompt": f"{n} + 1?", "ground_truth": str(n + 1)} for n in range(250)]


class Adder(BaseEnv):
    system_prompt = "Add."

    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        raise AssertionError

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(messages[-1]["content"] == task["ground_truth"])}


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch, tmp_path):
    for name in ("API_KEY", "PLATFORM_URL", "BASE_DOMAIN", "DATA", "CREDENTIALS_PATH"):
        monkeypatch.delenv(f"BENCHMAX_{name}", raising=False)
        monkeypatch.delenv(f"CASTFORM_{name}", raising=False)
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("CASTFORM_CREDENTIALS_PATH", str(tmp_path / "credentials.json"))


@pytest.fixture(scope="module")
def key(live):
    return live.user("sdk@example.org")[1]


@pytest.fixture
def trainer(live, key):
    with TrainerClient(key, live.url) as client:
        yield client


@pytest.fixture(scope="module")
def uploaded(live, key):
    return upload_training_run(
        env_class=Adder,
        train_dataset=ROWS[:200],
        eval_dataset=ROWS[200:],
        run_name="my first/run!",
        api_key=key,
        base_url=live.url,
    )


def test_the_upload_is_four_paths_and_the_same_again(live, key, uploaded):
    assert [field.name for field in fields(UploadedTrainingRun)] == list(asdict(uploaded))
    assert uploaded.env_cls_path.startswith("envs/my-first-run/")
    assert uploaded.train_dataset_path.startswith("datasets/my-first-run/")
    again = upload_training_run(
        env_class=Adder,
        train_dataset=iter(ROWS[:200]),
        eval_dataset=ROWS[200:],
        run_name="my first/run!",
        api_key=key,
        base_url=live.url,
    )
    assert again.train_dataset_path == uploaded.train_dataset_path
    with live.database.read() as session:
        owner = session.scalars(blobs.select(blobs.BlobPath.owner_id)).first()
        _, blob = blobs.find(session, owner, uploaded.train_dataset_path)
    lines = (live.data.blobs / blob.sha256[:2] / blob.sha256).read_text().splitlines()
    assert json.loads(lines[7]) == ROWS[7]
    assert len(lines) == 200


def test_too_few_rows_are_refused_before_anything_is_sent():
    nowhere = StorageClient("sk_x", "http://127.0.0.1:9")
    with pytest.raises(DatasetError, match="at least 16 training rows; there are 2"):
        upload_training_run(
            env_class=Adder, train_dataset=ROWS[:2], eval_dataset=[], run_name="r", storage_client=nowhere
        )
    nowhere.close()


@pytest.mark.parametrize("style", ["typed", "typed keyword", "untyped"])
def test_a_launch_with_and_without_a_type(trainer, uploaded, style):
    kind = {"typed": ("simple",), "typed keyword": (), "untyped": ()}[style]
    more = {"training_run_type": "simple"} if style == "typed keyword" else {}
    run_id = trainer.launch_training_run(*kind, **more, **asdict(uploaded), launcher_args={"num_epochs": 1})
    run = trainer.get_run(run_id, include_config=True)
    assert run["status"] == "pending"
    assert run["latestActivityMessage"] == "waiting for a free slot"
    assert run["launcherArgs"]["num_epochs"] == 1
    assert run["totalSteps"] >= 1
    assert trainer.cancel_run(run_id)["success"]


def test_a_refused_launch_says_why(trainer, uploaded):
    with pytest.raises(JobLaunchError, match="did you mean num_epochs") as caught:
        trainer.launch_training_run("simple", **asdict(uploaded), launcher_args={"numepochs": 1})
    assert caught.value.status_code == 400
    with pytest.raises(UsageError, match="env_cls_path"):
        trainer.launch_training_run("simple")


def test_a_wrong_key_and_no_key_are_authentication_errors(live):
    with TrainerClient("sk_wrong", live.url) as client, pytest.raises(AuthenticationError, match="401") as caught:
        client.list_runs()
    assert caught.value.status_code == 401
    with TrainerClient(base_url=live.url) as client, pytest.raises(AuthenticationError, match="CASTFORM_API_KEY"):
        client.list_runs()


def test_a_platform_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr("benchmax.platform.sdk.transport.TRIES", 1)
    with TrainerClient("sk_x", "http://127.0.0.1:9") as client, pytest.raises(TrainerError, match="benchmax up"):
        client.list_runs()


def test_warnings_of_the_server_are_python_warnings(live, key, trainer):
    small = upload_training_run(
        env_class=Adder, train_dataset=ROWS[:16], eval_dataset=ROWS[16:18], run_name="s", api_key=key, base_url=live.url
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.launch_training_run(**asdict(small))
    assert "Only 16 training rows" in str(caught[0].message)


def test_launch_args_are_listed_and_printed(trainer, capsys):
    specs = trainer.list_launch_args()
    assert all(isinstance(spec, LaunchArgSpec) for spec in specs)
    trainer.print_launch_args()
    assert "group_size" in capsys.readouterr().out


def record(step, sample):
    return {
        "id": f"r{step}-{sample}",
        "example_id": "e" * 64,
        "sample": sample,
        "split": "eval",
        "step": step,
        "rewards": {"correct": 1.0},
        "reward": 1.0,
        "messages": [{"role": "user", "content": "q"}],
    }


@pytest.fixture
def run_id(live, trainer, uploaded):
    run_id = trainer.launch_training_run(**asdict(uploaded))
    with live.database.write() as session:
        runs.set_status(session, run_id, "active", "training")
        runs.set_progress(session, run_id, step=2)
        lines = [points.MetricLine(step, "eval", 1.0, {"reward/mean": step / 2}) for step in range(3)]
        points.record(session, run_id, lines)
        rows = [rollouts.row_of(record(s, n), file="x.jsonl", offset=0, length=1) for s in (0, 1) for n in (0, 1)]
        rollouts.index(session, run_id, rows)
    return run_id


def test_a_run_as_data_frames(trainer, run_id):
    run = trainer.run(run_id)
    metrics = run.metrics_df()
    assert list(metrics["reward/mean"]) == [0.0, 0.5, 1.0]
    assert list(metrics["step"]) == [0, 1, 2]
    found = run.rollouts_df()
    assert len(found) == 4
    assert list(found["reward/correct"]) == [1.0] * 4
    assert list(run.rollouts_df(mode="train").columns)[:2] == ["id", "step"]
    assert run.url == f"{trainer.base_url}/experiments/{run_id}"
    assert "<td>my-first-run</td>" in run._repr_html_()
    assert "<th>steps</th><td>3 / " in run._repr_html_()
    assert repr(run) == f"TrainingRun('{run_id}')"


def test_every_reading_method_answers(trainer, run_id):
    assert trainer.get_run_details(run_id)["modes"] == ["eval"]
    assert trainer.get_run_events(run_id)[0]["type"] == "training.pending"
    assert trainer.get_run_scalars(run_id, "eval")["reward/mean"][1] == {"step": 1, "value": 0.5}
    assert trainer.get_environment_logs(run_id) == []
    assert trainer.get_rollout_summary(run_id)[0]["promptText"] == "q"
    assert [cell["id"] for cell in trainer.get_rollout_heatmap(run_id, "e" * 64)] == ["r0-0", "r0-1", "r1-0", "r1-1"]
    assert trainer.get_rollout_details(run_id, "r1-0")["complete"] is False
    assert trainer.get_rollout_mode_average(run_id)["avg"] == 1.0
    assert trainer.get_rollout_component_averages(run_id) == {"correct": 1.0}
    assert trainer.get_rollout_component_averages(run_id, mode="train") is None
    assert trainer.list_checkpoints(run_id) == []
    assert any(run["id"] == run_id for run in trainer.list_runs())
    assert trainer.delete_run(run_id)["success"]
    with pytest.raises(TrainerError, match="404"):
        trainer.get_run(run_id)


async def test_the_async_twin_has_the_same_methods(live, key, run_id):
    async with AsyncTrainerClient(key, live.url) as client:
        both = await asyncio.gather(client.get_run(run_id), client.get_run_scalars(run_id, "eval"))
        assert both[0]["id"] == run_id
        await client.cancel_run(run_id)
        with live.database.write() as session:
            runs.set_status(session, run_id, "cancelled")
        kinds = [event["type"] async for event in client.stream_run(run_id)]
        assert kinds[-1] == "training.cancelled"


def test_a_live_feed_is_complete_and_goes_on_where_it_was(live, trainer, run_id):
    seen = []

    def follow():
        seen.extend(event["id"] for event in trainer.stream_run(run_id))

    readers = [threading.Thread(target=follow) for _ in range(3)]
    for thread in readers:
        thread.start()
    for step in range(20):
        with live.database.write() as session:
            events.append(session, run_id, "points", category="feed", data={"step": step})
    with live.database.write() as session:
        runs.set_status(session, run_id, "complete")
    for thread in readers:
        thread.join(60)
    with live.database.read() as session:
        every = [event.id for event in events.after(session, run_id, 0)]
    assert sorted(seen) == sorted(every * 3)
    rest = [event["id"] for event in trainer.stream_run(run_id, every[-3])]
    assert rest == every[-2:]


def test_checkpoints_and_changes(live, trainer, run_id):
    folder = live.data.run(run_id) / "checkpoints" / "step-10"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"1234")
    (folder.parent / "latest").write_text("step-10")
    (folder.parent / "step-99").symlink_to("/etc")
    found = trainer.list_checkpoints(run_id)
    assert [(each["name"], each["bytes"], each["latest"], each["best"]) for each in found] == [
        ("step-10", 4, True, False)
    ]
    changed = trainer.change_run(run_id, tags=["a"], archived=True, name="<b>")
    assert (changed["tags"], changed["archived"], changed["name"]) == (["a"], True, "<b>")
    assert run_id not in {run["id"] for run in trainer.list_runs()}
    eval_info = trainer.start_external_eval(run_id, "checkpoint:step-10", samples=2)
    assert [each["id"] for each in trainer.list_external_evals(run_id)] == [eval_info["id"]]
    assert trainer.get_comparison(run_id, eval_info["id"])["compGroups"] == []
    assert eval_info["status"] == "pending"
    with live.database.read() as session:
        assert jobs.of_run(session, run_id)[-1].eval_id == eval_info["id"]
    with pytest.raises(TrainerError, match="no such checkpoint"):
        trainer.start_external_eval(run_id, "checkpoint:step-11")


def test_a_cut_off_run_is_queued_again(live, trainer, run_id):
    assert trainer.resume_run(run_id)["success"] is False
    with live.database.write() as session:
        runs.set_status(session, run_id, "failed", "killed")
    assert trainer.resume_run(run_id)["success"] is True
    assert trainer.get_run(run_id)["status"] == "pending"


def test_datasets_are_previewed_with_their_mistakes(live, key):
    with StorageClient(key, live.url) as storage:
        text = b'prompt,ground_truth\n"1 + 1?",2\n,3\n"x",4\n'
        storage.upload_file("datasets/p/a.csv", text, "text/csv")
        found = storage._get("/v1/datasets/preview", path="datasets/p/a.csv")
        assert (found["rows"], found["usable"], found["errors"]) == (3, 2, 1)
        assert found["issues"][0]["row"] == 3
        assert found["sample"][0]["prompt"] == "1 + 1?"
        storage.upload_file("datasets/p/a.yaml", b"a: 1", "text/yaml")
        with pytest.raises(TrainerError, match=r"datasets/p/a\.yaml is no dataset file") as caught:
            storage._get("/v1/datasets/preview", path="datasets/p/a.yaml")
        assert "/tmp" not in str(caught.value)


def test_storage_takes_known_kinds_of_files_only(live, key, tmp_path):
    with StorageClient(key, live.url) as storage:
        with pytest.raises(ValueError, match="does not take"):
            storage.upload_local_file("a/b.exe", tmp_path / "b.exe")
        with pytest.raises(FileNotFoundError):
            storage.upload_local_file("a/b.jsonl", tmp_path / "b.jsonl")


def test_the_rollout_client_speaks_the_wire_and_hears_404(live, key):
    with RolloutClient(key, live.url) as client:
        with pytest.raises(RolloutNotFound, match="no upload"):
            client.stream_rollout({"prompt": "x"}, "a", "b")
        with pytest.raises(ValueError, match="either as"):
            client.stream_rollout({"prompt": "x"}, "a", "b", env_cls_bytes=b"", env_metadata_bytes=b"")
        with pytest.raises(ValueError, match="not sent to"):
            client.stream_rollout({"prompt": "x"}, "a", "b", llm_base_url="https://evil.test/v1", llm_api_key=key)


# Signing in


def test_a_device_is_signed_in_and_its_session_is_private(live, key, monkeypatch, tmp_path):
    said = []

    def approve(_):
        code = said[0].rsplit(" ", 1)[1].rstrip(".")
        with live.client(key) as client:
            assert client.post("/api/auth/device/approve", json={"userCode": code}).status_code == 200

    path = credentials.login(live.url, say=said.append, sleep=approve)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with TrainerClient(base_url=live.url) as client:
        assert client._get("/v1/whoami")["email"] == "sdk@example.org"
    path.chmod(0o644)
    with TrainerClient(base_url=live.url) as client, pytest.raises(UsageError, match="chmod 600"):
        client.list_runs()
    assert credentials.logout() is True
    assert credentials.logout() is False


def test_the_key_is_found_in_the_order_that_is_written(live, key, monkeypatch, tmp_path):
    monkeypatch.setenv("CASTFORM_API_KEY", "third")
    assert credentials.bearer("given", None, live.url) == "given"
    assert credentials.bearer(None, lambda: "provided", live.url) == "provided"
    assert credentials.bearer(None, None, live.url) == "third"
    monkeypatch.setenv("PLATFORM_API_KEY", "second")
    assert credentials.bearer(None, None, live.url) == "second"
    (tmp_path / "token").write_text("first\n")
    monkeypatch.setenv("ACT_AS_TOKEN_PATH", str(tmp_path / "token"))
    assert credentials.bearer(None, None, live.url) == "first"


def test_the_local_servers_key_goes_to_the_local_server_alone(tmp_path, monkeypatch):
    from benchmax.platform.server.app import prepare

    with LiveServer(tmp_path) as server:
        prepare(server.settings, server.database)
        monkeypatch.setenv("BENCHMAX_DATA", str(server.data.root))
        with TrainerClient(base_url=server.url) as client:
            assert client.list_runs() == []
        with pytest.raises(AuthenticationError):
            credentials.bearer(None, None, "https://api.castform.com")


# The process


@contextmanager
def start(folder, port, *more):
    command = [sys.executable, "-m", "benchmax.platform.server", "--data", str(folder), "--port", str(port), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            yield server
            server.wait(60)
        finally:
            server.kill()


def test_the_server_starts_and_keeps_a_second_one_out(tmp_path, monkeypatch):
    port = ports.free_port()
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path))
    with start(tmp_path, port) as first:
        assert first.stdout.readline() == f"benchmax is at http://127.0.0.1:{port}\n"
        link = sign_in_link(Options(DataDir(tmp_path), port))
        token = link.partition("token=")[2]
        with TrainerClient() as client:  # finds the server and its key by itself
            assert client.base_url == f"http://127.0.0.1:{port}"
            assert client.list_runs() == []
            assert client._http.post(f"{client.base_url}/login", json={"token": token}).status_code == 200
        with start(tmp_path, port + 1) as second:
            said = second.stdout.read()
        assert second.returncode == 2
        assert f"pid {first.pid}" in said
        first.kill()
    assert local_url() is None
    with start(tmp_path, port) as third:
        assert third.stdout.readline().startswith("benchmax is at")
        with TrainerClient() as client:
            assert client._get("/v1/whoami")["role"] == "admin"
        third.terminate()
        third.wait(60)
    assert not (tmp_path / "server.json").exists()


STOPPED_IN_A_CALLBACK = """
import os, signal, sys, weakref
from benchmax.platform.server import __main__, app

class Lock:
    pass

def stop(_):
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # the handler is called here
        pass

def open_database(*given, opened=app.open_database):
    lock = Lock()
    kept = weakref.ref(lock, stop)
    del lock
    return opened(*given)

app.open_database = open_database
sys.exit(__main__.main())
"""


def test_a_server_that_is_stopped_while_it_imports_something_stops(tmp_path):
    """Every import has a callback, and Python drops what is raised in one."""
    command = [sys.executable, "-c", STOPPED_IN_A_CALLBACK, "--data", str(tmp_path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Exception ignored in: <function stop" in done.stderr
    assert (done.returncode, "benchmax is at" in done.stdout) == (0, True), done.stderr
    assert not (tmp_path / "server.json").exists()


def test_a_server_beyond_loopback_does_not_start_without_a_password(tmp_path):
    with start(tmp_path, 1, "--host", "0.0.0.0") as server:
        assert "no user has a password" in server.stdout.read()
    assert server.returncode == 2
