"""Every method of the SDK for the platform's resources, against a real server, plain and async."""

from __future__ import annotations

import tarfile
import threading
import time

import pytest
from sqlalchemy import insert

from benchmax.errors import UsageError
from benchmax.platform.client import AsyncStorageClient, AsyncTrainerClient, TrainerClient
from benchmax.platform.daemon.backup import back_up
from benchmax.platform.exceptions import TrainerError
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.runs import rollouts
from benchmax.platform.store.tables import Run
from platform_world import make_run

CSV = "prompt,ground_truth\n" + "".join(f'"{n} + 1?",{n + 1}\n' for n in range(40))


@pytest.fixture(scope="module")
def key(live):
    return live.user("sdk@example.org", role="admin")[1]


@pytest.fixture
def trainer(live, key):
    with TrainerClient(key, live.url) as client:
        yield client


@pytest.fixture
def run_id(live, key):
    with live.database.write() as session:
        run = make_run(session, "sdk@example.org", args={"model": "m"})
        line = {"rollout_id": "r", "step": 0, "time": 1.0, "level": "INFO", "traceback": None}
        rollouts.add_logs(session, run.id, [line | {"message": f"m{n}"} for n in range(1500)])
    folder = live.data.run(run.id) / "checkpoints" / "step-7"
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(b"w")
    (folder.parent / "latest").write_text("step-7")
    (live.data.run(run.id) / "child.log").write_text("one\ntwo\n")
    return run.id


def test_runs(trainer, run_id):
    assert trainer.change_run(run_id, pinned=True, notes="n")["pinned"]
    assert trainer.get_run_config(run_id)["args"][0]["name"] == "model"
    assert trainer.get_run_system(run_id) == {"points": [], "now": None}
    assert [line["message"] for line in trainer.iter_run_logs(run_id)] == ["one", "two"]
    assert len(trainer.get_environment_logs(run_id)) == 1500
    assert sum(1 for _ in trainer.iter_run_logs(run_id, "environment")) == 1500
    assert trainer.get_comparison_summary(run_id, other_run_id=run_id) == {"n": 0, "components": []}
    with pytest.raises(TrainerError, match="no evaluation yet"):
        trainer.rescore_run(run_id)


def test_more_runs_than_one_answer_holds_are_all_listed(live):
    owner, key = live.user("busy@example.org")
    row = {"owner_id": owner, "name": "r"}
    with live.database.write() as session:
        session.execute(insert(Run), [row | {"id": f"run_{n:04}", "created": float(n)} for n in range(2_000)])
    with TrainerClient(key, live.url) as client:
        assert [run["id"] for run in client.list_runs()] == [f"run_{n:04}" for n in reversed(range(2_000))]


def test_datasets_and_launches(trainer):
    path = trainer.create_dataset("a.csv", CSV.encode())["path"]
    assert path in [each["path"] for each in trainer.list_datasets()]
    assert trainer.add_dataset_row(path, {"prompt": "x"})["rows"] == 41
    with pytest.raises(
        TrainerError,
        match=r"41 of 41 rows .*\n.*a\.jsonl:1: question: nothing is there: the row has the columns prompt",
    ):
        trainer.launch_environment("calculator", path.replace(".csv", ".jsonl"))
    path = trainer.create_dataset("b.csv", CSV.replace("prompt", "question", 1).encode())["path"]
    launched = trainer.launch_environment("calculator", path, eval_share=0.1, launcher_args={"max_steps": 2})
    assert trainer.get_run(launched)["totalSteps"] == 2
    rows = trainer.create_dataset("sft.csv", CSV.encode().replace(b"ground_truth", b"completion"))["path"]
    assert trainer.get_run(trainer.launch_sft_run(rows, name="s", eval_rows=8))["name"] == "s"
    assert trainer.delete_dataset(path)["success"]


def test_users(trainer):
    made = trainer.create_user("new@example.org", "a long password")
    assert made["id"] in [each["id"] for each in trainer.list_users()]
    assert trainer.delete_user(made["id"])["success"]


def test_a_dataset_tells_the_name_it_got(trainer):
    assert trainer.create_dataset("rö ws.csv", CSV.encode())["path"] == "datasets/r-ws.csv"
    trainer.delete_dataset("datasets/r-ws.csv")


def test_a_password_is_changed_and_sessions_end(live):
    from benchmax.platform.server.security import passwords
    from benchmax.platform.store.accounts import logins

    user_id, key = live.user("password@example.org")
    live.set_password(user_id, "the first password")
    with live.database.write() as session:
        opened = logins.open_login(session, user_id)
    with TrainerClient(api_key=key, base_url=live.url) as client:
        assert client.change_password("the first password", "the second password")["success"]
        with live.database.read() as session:
            assert logins.find_login(session, opened) is None
        assert client.sign_out_everywhere(keys=True)["success"]
        client.list_runs()
    assert passwords.check_password(live.database, "password@example.org", "the second password", "") == user_id


def test_webhooks(trainer):
    made = trainer.create_webhook("https://hooks.example/x", events=["run.ended"])
    assert [each["id"] for each in trainer.list_webhooks()] == [made["id"]]
    sent = trainer.test_webhook(made["id"])
    assert [each["id"] for each in trainer.list_webhook_deliveries(made["id"])] == [sent["id"]]
    assert trainer.delete_webhook(made["id"])["success"]


def test_endpoints_and_secrets(trainer):
    made = trainer.create_endpoint("e", "https://m.example.org/v1", "m", api_key="sk-x")
    assert trainer.list_endpoints() == [made]
    assert trainer.delete_endpoint(made["id"])["success"]
    trainer.set_secret("HF_TOKEN", "v")
    assert [each["name"] for each in trainer.list_secrets()] == ["HF_TOKEN"]
    assert trainer.delete_secret("HF_TOKEN")["success"]


def test_an_environment_is_examined_and_waited_for(live, trainer):
    assert trainer.get_environment("arithmetic")["files"]
    boss, done = Supervisor(live.database, live.data, slots=[]), threading.Event()

    def work():
        while not done.is_set():
            boss.tick()
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        report = trainer.examine_environment("arithmetic")
    finally:
        done.set()
        thread.join(60)
    assert (report["status"], report["ok"]) == ("complete", True)


def test_a_checkpoint_is_waited_for_and_unpacked(live, trainer, run_id, tmp_path):
    exports = live.data.run(run_id) / "exports"
    (tmp_path / "README.md").write_text("a card")

    def make():
        exports.mkdir()
        with tarfile.open(exports / "part", "w") as tar:
            tar.add(tmp_path / "README.md", arcname="step-7-adapter/README.md")
        (exports / "part").rename(exports / "step-7-adapter.tar")

    timer = threading.Timer(0.5, make)
    timer.start()
    try:
        assert trainer.run(run_id).download(str(tmp_path / "deep" / "out"), format="adapter") == "step-7"
    finally:
        timer.join()
    assert (tmp_path / "deep" / "out" / "README.md").read_text() == "a card"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    with pytest.raises(UsageError, match="is not empty"):
        trainer.download_checkpoint(run_id, tmp_path / "deep" / "out")
    with pytest.raises(TrainerError, match="no such checkpoint"):
        trainer.download_checkpoint(run_id, tmp_path / "other", "step-8")
    back_up(live.data, tmp_path / "backup.tar", database=live.data.database.exists())
    with tarfile.open(tmp_path / "backup.tar") as archive:
        names = archive.getnames()
    assert any(name.endswith("step-7/weights.safetensors") for name in names)
    assert not any("exports" in name for name in names), "they can be made again"


async def test_async_clients_do_the_same(live, key, run_id, tmp_path):
    (tmp_path / "rows.csv").write_text(CSV)
    async with AsyncStorageClient(key, live.url) as storage:
        stored = await storage.upload_local_file("datasets/async/rows.csv", tmp_path / "rows.csv")
        assert stored["blobPath"] == "datasets/async/rows.csv"
    async with AsyncTrainerClient(key, live.url) as client:
        assert [each["id"] for each in await client.list_environments()][:2] == ["arithmetic", "calculator"]
        assert "datasets/async/rows.csv" in [each["path"] for each in await client.list_datasets()]
        assert (await client.change_run(run_id, tags=["x"]))["tags"] == ["x"]
        assert [line["message"] async for line in client.iter_run_logs(run_id)] == ["one", "two"]
        assert len(await client.get_environment_logs(run_id)) == 1500
        assert sum([1 async for _ in client.iter_environment_logs(run_id)]) == 1500
        run = await client.run(run_id)
        assert await run.status() == "pending"
        with pytest.raises(TimeoutError, match="still pending"):
            await run.wait(seconds=0.0, poll=0.01)
        with pytest.raises(TrainerError, match="no such checkpoint"):
            await client.download_checkpoint(run_id, tmp_path / "out", "step-8")
        assert not (tmp_path / "out").exists()
