"""The commands that talk to a platform, against a real server and a runner whose children train nothing."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import threading

import pyarrow
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from benchmax.cli.local import data
from benchmax.cli.platform import account, endpoints_and_secrets, keys, launch, runs, webhooks
from benchmax.errors import ConfigError, DatasetError, NotFoundError, UsageError
from benchmax.platform.client import TrainerClient
from benchmax.platform.daemon import control, liveness
from benchmax.platform.exceptions import AuthenticationError
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.sdk import credentials
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals, rollouts
from benchmax.platform.store.runs import runs as stored_runs
from platform_world import LiveServer, make_run
from runner_world import end_all, start_stub, wait_until

app = typer.Typer()
for command in (account.login, account.logout, account.whoami, launch.launch, runs.stop, runs.resume):
    app.command()(command)
for name, group in (
    ("runs", runs.app),
    ("keys", keys.app),
    ("data", data.app),
    ("endpoints", endpoints_and_secrets.endpoints),
    ("webhooks", webhooks.app),
    ("secrets", endpoints_and_secrets.secrets),
):
    app.add_typer(group, name=name)

PROJECT = """
from benchmax.envs.base_env import BaseEnv

class Sums(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        print("environments print")
        return {"right": float(messages[-1]["content"].strip() == task["ground_truth"])}
"""
USER = "cli@example.org"


def call(*words, code=0, stdin=None):
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def call_json(*words, **more):
    return json.loads(call(*words, "--json", **more).stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server, and a runner in a thread of its own."""
    with LiveServer(tmp_path_factory.mktemp("cli")) as live:
        boss, over = Supervisor(live.database, live.data, slots=["cpu:0", "cpu:1"], start=start_stub), threading.Event()

        def work():
            while not over.wait(0.02):
                boss.tick()

        thread = threading.Thread(target=work)
        thread.start()
        live.key = live.user(USER)[1]
        yield live
        over.set()
        thread.join(60)
        end_all(boss)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """A machine on which nobody signed in and no platform runs."""
    for name in [*os.environ]:
        if name.startswith(("BENCHMAX_", "CASTFORM_")) or name in ("PLATFORM_API_KEY", "ACT_AS_TOKEN_PATH"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(tmp_path / "session" / "credentials.json"))
    monkeypatch.setenv("BENCHMAX_NO_AUTO_START", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(server, monkeypatch):
    """The server as this machine's platform."""
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", server.url)
    monkeypatch.setenv("CASTFORM_API_KEY", server.key)
    return server


def start(server, name="r", **args):
    with server.database.write() as session:
        run = make_run(session, USER, name=name, args=args)
        jobs.enqueue(session, run.id)
    return run.id


def ended(server, run_id):
    def is_over():
        with server.database.read() as session:
            return stored_runs.get(session, run_id).ended

    wait_until(is_over)
    return run_id


def project(folder, rows=20):
    folder.mkdir()
    (folder / "main.py").write_text(PROJECT)
    lines = [json.dumps({"prompt": f"{n}+1?", "ground_truth": str(n + 1)}) + "\n" for n in range(rows)]
    (folder / "train_dataset.jsonl").write_text("".join(lines))
    (folder / "eval_dataset.jsonl").write_text("".join(lines[:4]))


# Where and who


def test_nothing_elsewhere_is_used_unasked(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"NO_AUTO_START.*benchmax up"):
        call("whoami")
    with pytest.raises(ConfigError):
        TrainerClient(api_key="sk_x")
    monkeypatch.setenv("CASTFORM_BASE_DOMAIN", "example.org")
    assert credentials.base_url() == "https://api.example.org", "named, so meant"


@pytest.mark.timeout(300)
def test_the_sdk_starts_the_platform_of_this_machine(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("BENCHMAX_NO_AUTO_START")
    place = DataDir(tmp_path / "data")
    try:
        with TrainerClient() as trainer:
            assert trainer.list_runs() == []
        assert "Starting the benchmax platform in the background" in capfd.readouterr().err
        found = call_json("whoami")
        assert (found["email"], found["platform"]) == ("local@localhost", liveness.server_url(place))
        assert "Signed in" in call("login").stderr, "its own key is enough"
        with TrainerClient(api_key="sk_wrong") as trainer, pytest.raises(AuthenticationError):
            trainer.list_runs()
    finally:
        assert control.stop(place)


def test_a_server_file_that_lies_is_not_believed(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "server.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        with pytest.raises(ConfigError):  # the process lives, but nobody listens
            credentials.base_url()
        probe.listen()
        assert credentials.base_url() == url


def test_sign_in_by_key(server, tmp_path):
    key = server.key
    assert "no API key" in call("whoami", "--url", server.url, code=4).stderr
    call("login", "--key", "--url", server.url, stdin="sk_wrong\n", code=4)
    with pytest.raises(UsageError, match="No key"):
        call("login", "--key", "--url", server.url, stdin="\n")
    assert not credentials.credentials_path().exists(), "only a key that works is kept"
    said = call("login", "--key", "--url", server.url, stdin=f"{key}\n")
    assert USER in said.stderr
    assert key not in said.output
    kept = credentials.credentials_path()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert call_json("whoami")["email"] == USER, "the platform one signed in to is used from now on"
    assert call_json("logout") == {"signedOut": True}
    assert call_json("logout") == {"signedOut": False}
    assert not kept.exists()


def test_sign_in_by_code(server, monkeypatch):
    def confirm(_):
        with server.client(server.key) as http:
            with server.database.read() as session:
                from benchmax.platform.store.tables import DeviceCode

                code = session.query(DeviceCode).one().user_code
            http.post("/api/auth/device/approve", json={"user_code": code, "approve": True}).raise_for_status()

    monkeypatch.setattr(credentials.login, "__kwdefaults__", {**credentials.login.__kwdefaults__, "sleep": confirm})
    said = call("login", "--no-browser", "--url", server.url)
    assert re.search(r"Open http\S+/device\S+ and confirm the code", said.stderr)
    assert call_json("whoami")["email"] == USER


def test_keys(here):
    made = call_json("keys", "create", "ci", "--scope", "read", "--days", "7")
    assert made["key"].startswith("sk_")
    assert made["scopes"] == ["read"]
    listed = call("keys", "list").stdout
    assert made["id"] in listed
    assert made["key"] not in listed
    plain = call("keys", "create", "other")
    assert plain.stdout.startswith("sk_")
    assert "not shown again" in plain.stderr
    assert call_json("keys", "revoke", made["id"])["success"]
    with here.client(made["key"]) as http:
        assert http.get("/v1/whoami").status_code == 401
    with pytest.raises(NotFoundError):
        call("keys", "revoke", "nothing")
    with pytest.raises(UsageError, match="no scope"):
        call("keys", "create", "--scope", "root")


@pytest.mark.parametrize("key", ["sk_abc_SECRET\nline2", "sk_abc_SECRET\x01", "sk_SECRET_ünï", "sk_SECRET more"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(here, monkeypatch, key):
    monkeypatch.setenv("CASTFORM_API_KEY", key)
    refused = call("whoami", code=4)
    assert "The API key contains" in refused.stderr
    assert "SECRET" not in refused.output
    with pytest.raises(AuthenticationError, match="Copy it again"):
        TrainerClient(api_key=key).list_runs()


def test_webhooks_are_added_tried_and_forgotten(here):
    secret = call("webhooks", "add", "http://127.0.0.1:9/hook", "--event", "run.alert").stdout.strip()
    assert secret.startswith("whsec_")
    [made] = call_json("webhooks", "list")
    assert (made["url"], made["events"]) == ("http://127.0.0.1:9/hook", ["run.alert"])
    assert secret not in call("webhooks", "list").stdout
    sent = call_json("webhooks", "test", made["id"])
    assert [each["id"] for each in call_json("webhooks", "log", made["id"])] == [sent["id"]]
    assert "test" in call("webhooks", "log", made["id"]).stdout
    call("webhooks", "rm", made["id"])
    assert call_json("webhooks", "list") == []
    with pytest.raises(UsageError, match=r"no event 'run\.done'\. Use run\.ended, run\.alert"):
        call("webhooks", "add", "https://h.example/x", "--event", "run.done")


def test_endpoints_are_added_listed_and_forgotten(here):
    made = call_json("endpoints", "add", "small", "https://m.example.org/v1", "m-1", "--key", stdin="sk-KEY\n")
    assert made["hasKey"]
    listed = call("endpoints", "list")
    assert made["id"] in listed.stdout
    assert "sk-KEY" not in listed.output
    plain = call("endpoints", "add", "open", "http://127.0.0.1:8000/v1", "m-2")
    assert f"endpoint:{plain.stdout.strip()}" in plain.stderr
    assert [each["hasKey"] for each in call_json("endpoints", "list")] == [False, True]
    for each in (made["id"], plain.stdout.strip()):
        call("endpoints", "rm", each)
    assert call_json("endpoints", "list") == []
    with pytest.raises(NotFoundError, match="no such endpoint"):
        call("endpoints", "rm", made["id"])
    with pytest.raises(UsageError, match="not a web address"):
        call("endpoints", "add", "bad", "m.example.org", "m")


def test_secrets_come_from_stdin_and_are_never_shown(here):
    call("secrets", "set", "HF_TOKEN", stdin="hf_VALUE\n")
    listed = call("secrets", "list")
    assert "HF_TOKEN" in listed.stdout
    assert "hf_VALUE" not in listed.output
    call("secrets", "rm", "HF_TOKEN")
    assert call_json("secrets", "list") == []
    with pytest.raises(NotFoundError, match="no such secret"):
        call("secrets", "rm", "HF_TOKEN")
    with pytest.raises(UsageError, match="No value"):
        call("secrets", "set", "HF_TOKEN", stdin="")
    with pytest.raises(UsageError, match="environment variable"):
        call("secrets", "set", "9x", stdin="v")


def test_a_key_that_may_not_is_told_so(here, monkeypatch):
    monkeypatch.setenv("CASTFORM_API_KEY", here.user(USER, scopes=("read",))[1])
    call("runs", "list")
    run_id = ended(here, start(here, steps=1))
    assert "scope" in call("stop", run_id, code=4).stderr
    monkeypatch.setenv("CASTFORM_API_KEY", "sk_wrong")
    assert "The key is that of CASTFORM_API_KEY" in call("runs", "list", code=4).stderr
    monkeypatch.setenv("PLATFORM_API_KEY", "sk_left_over")
    assert "The key is that of PLATFORM_API_KEY" in call("whoami", code=4).stderr


# Launching


def test_launch_checks_uploads_and_starts(here, tmp_path):
    project(tmp_path / "task")
    said = call("launch", "--dir", "task", "--name", "sums", "--set", "group_size=4", "--json")
    launched = json.loads(said.stdout)
    assert launched["url"] == f"{here.url}/experiments/{launched['runId']}"
    assert "recommended" in launched["warnings"][0]
    run = call_json("runs", "get", launched["runId"], "--config")
    assert (run["name"], run["launcherArgs"]["group_size"]) == ("sums", 4)
    manifest = json.loads((tmp_path / "task" / ".castform" / "runs" / f"{launched['runId']}.json").read_text())
    assert manifest["rows"] == {"train": 20, "eval": 4}
    assert manifest["launcherArgs"] == {"group_size": 4}
    assert re.fullmatch("[0-9a-f]{64}", manifest["files"]["train_dataset_path"]["sha256"])
    assert manifest["environment"].endswith("Sums")
    ended(here, launched["runId"])


def test_a_project_brings_its_launch_arguments(here, tmp_path):
    project(tmp_path / "task")
    config = {"name": "from-file", "args": {"group_size": 4, "max_turns": 2}}
    (tmp_path / "task" / "main.py").write_text(f"{PROJECT}\nLAUNCH_CONFIG = {config}\n")
    said = call_json("launch", "--dir", "task", "--skip-validate", "--set", "group_size=6")
    run = call_json("runs", "get", said["runId"], "--config")
    found = run["launcherArgs"]
    assert (run["name"], found["group_size"], found["max_turns"]) == ("from-file", 6, 2)
    ended(here, said["runId"])
    (tmp_path / "task" / "main.py").write_text(f"{PROJECT}\nLAUNCH_CONFIG = {{'group_size': 4}}\n")
    with pytest.raises(UsageError, match=r"unknown key 'group_size'.*name, env_args, pip, args"):
        call("launch", "--dir", "task", "--skip-validate")


def test_launch_refuses_before_anything_is_sent(here, tmp_path):
    project(tmp_path / "task", rows=20)
    before = len(call_json("runs", "list"))
    with pytest.raises(ConfigError, match="did you mean group_size"):
        call("launch", "--dir", "task", "--skip-validate", "--set", "group_sise=4")
    with pytest.raises(ConfigError, match=r"did you mean tune\?$"):
        call("launch", "--dir", "task", "--set", "tun=full")
    with pytest.raises(ConfigError, match="must be from 2"):
        call("launch", "--dir", "task", "--skip-validate", "--set", "group_size=1")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        call("launch", "--dir", "task", "--skip-validate", "--set", "group_size")
    (tmp_path / "task" / "main.py").write_text(PROJECT.replace('task["ground_truth"]', '"always wrong"'))
    assert "Nothing was uploaded" in call("launch", "--dir", "task", code=1).stderr
    assert len(call_json("runs", "list")) == before


def test_launch_arguments_are_checked_before_the_doctor(here, tmp_path, capfd):
    project(tmp_path / "task")
    with pytest.raises(ConfigError, match="no launch argument 'nope'"):
        call("launch", "--dir", "task", "--set", "nope=1")
    assert "environments print" not in "".join(capfd.readouterr())


def test_rows_are_set_aside_when_none_were_given(here, tmp_path):
    project(tmp_path / "task", rows=40)
    said = call("launch", "--dir", "task", "--train", "task/train_dataset.jsonl", "--json")
    assert "8 of 40 rows are set aside" in said.stderr
    run_id = json.loads(said.stdout)["runId"]
    manifest = json.loads((tmp_path / "task" / ".castform" / "runs" / f"{run_id}.json").read_text())
    assert manifest["rows"] == {"train": 32, "eval": 8}
    train, held_out = launch.set_aside([{"prompt": str(number)} for number in range(18)])
    assert (len(train), len(held_out)) == (16, 2)
    assert not [row for row in held_out if row in train]
    with pytest.raises(DatasetError, match="16 rows are too few"):
        launch.set_aside([{"prompt": "x"}] * 16)
    (tmp_path / "bad.jsonl").write_text("{broken\n")
    with pytest.raises(DatasetError, match="cannot be read"):
        launch.set_aside(str(tmp_path / "bad.jsonl"))
    ended(here, run_id)


def test_launch_names_every_warning_once(here, tmp_path):
    project(tmp_path / "task")
    rows = (tmp_path / "task" / "train_dataset.jsonl").read_text()
    (tmp_path / "task" / "train_dataset.jsonl").write_text(rows + rows.splitlines(keepends=True)[0])
    said = call("launch", "--dir", "task", "--set", "learning_rate=0.01").stderr
    number = int(re.search(r"no errors, (\d+) warning", said)[1])
    assert number == len(re.findall(r"^! ", said, re.MULTILINE)) > 0
    assert "1 of 21 rows repeat another" in said
    assert said.count("learning_rate = 0.01 is above 0.005; training may diverge.") == 1
    assert said.count("/experiments/run_") == 1


def test_launch_arguments_can_be_read_in_a_pipe(here):
    shown = call("launch", "--list-args").stdout.splitlines()
    specs = call_json("launch", "--list-args")
    assert [line.split()[0] for line in shown[::2]] == [spec["name"] for spec in specs]
    assert [line.strip() for line in shown[1::2]] == [spec["description"] for spec in specs]


def test_launch_arguments_are_listed(here):
    listed = call_json("launch", "--list-args")
    assert ("group_size", "integer") in [(each["name"], each["type"]) for each in listed]
    assert "group_size" in call("launch", "--list-args").stdout


def test_names_of_launch_arguments_are_never_cut(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = call("launch", "--list-args").stdout
    assert all(spec["name"] in shown for spec in call_json("launch", "--list-args"))


# Reading


@pytest.fixture(scope="module")
def finished(server):
    """A run that is over, with an evaluation of its base model."""
    run_id = ended(server, start(server, "do[b]ne\x1b[31m", steps=5))
    with server.database.write() as session:
        against = evals.create(session, run_id, model="base")
        for number in range(6):
            for mode, eval_id, reward in (("eval", "", 0.9), (evals.SPLIT, against.id, number / 10)):
                record = {"id": f"{mode}{number}", "example_id": f"e{number}", "split": mode, "step": 3}
                record |= {"reward": reward, "messages": [{"role": "user", "content": f"\x1b[2Jq{number}"}]}
                row = rollouts.row_of(record, file="x", offset=0, length=1, split=mode, eval_id=eval_id)
                rollouts.index(session, run_id, [row])
        evals.set_progress(session, against.id, status="complete")
    return run_id


def test_runs_are_listed_and_shown(here, finished):
    assert "The newest 1 of" in call("runs", "list", "-n", 1).stderr
    shown = call("runs", "list", "-n", 1000).stdout
    assert finished in shown
    assert "do[b]ne\\x1b[31m" in shown, "hostile names are shown, not obeyed"
    (listed,) = (run for run in call_json("runs", "list", "-n", 1000) if run["id"] == finished)
    assert listed["status"] == "complete"
    assert call("runs", "status", finished).stdout == "complete, step 5/5: All steps are done.\n"
    assert call_json("runs", "status", finished)["latestStep"] == 4
    found = call_json("runs", "get", finished)
    assert "launcherArgs" not in found
    assert found["modes"] == ["eval", "external-eval", "train"]
    shown = call("runs", "get", finished).stdout
    assert f"/experiments/{finished}" in shown
    assert re.search(r"^ step +5/5", shown, re.MULTILINE)
    assert "latestStep" not in shown, "which counts from 0"
    assert "null" not in shown
    with pytest.raises(NotFoundError):
        call("runs", "get", "run_absent")


def test_scalars_logs_and_rollouts(here, finished):
    table = call("runs", "scalars", finished).stdout
    assert re.search(r"reward/mean +0 +0\.4 +0 +0\.4 +▁▃▅▆█", table), table
    assert [p["value"] for p in call_json("runs", "scalars", finished, "--name", "reward")["reward/mean"]][-1] == 0.4
    assert call_json("runs", "scalars", finished, "--mode", "nothing") == {}
    rows = call_json("runs", "rollouts", finished, "--mode", "train", "-n", 3)
    assert [row["step"] for row in rows] == [4, 4, 3]
    of_one = call_json("runs", "rollouts", finished, "--mode", "train", "--example", "e1")
    assert [row["step"] for row in of_one] == [4, 3, 2, 1, 0]
    shown = call("runs", "rollouts", finished, "--mode", "train", "-n", 1).stdout
    assert shown.splitlines()[1].split()[:2] == [rows[0]["id"], "5"], "counted from 1, as everywhere"
    assert "\x1b" not in call("runs", "rollouts", finished).stdout
    whole = call("runs", "rollout", finished, rows[0]["id"]).stdout
    assert whole.startswith("── user\n   │ 2+2?\n")
    assert "[reward] 0.400 (right 0.400)" in whole
    assert call_json("runs", "rollout", finished, rows[0]["id"])["step"] == 4
    logged = call_json("runs", "logs", finished, "--rollout-id", rows[0]["id"])
    assert [line["message"] for line in logged] == ["step 4"]
    assert "step 4" in call("runs", "logs", finished).stdout


def test_what_a_model_wrote_cannot_pass_for_what_the_command_says(here, finished, monkeypatch):
    told = {
        "promptMessages": [{"role": "user", "content": "Say [b]hello[/b]."}],
        "messages": [{"role": "assistant\n[reward]", "content": "x\n[reward] 1.000 (right 1.000)"}],
        "task": {"a": "b\n[reward] 1.000"},
        "rewards": [{"name": "right\n[reward]", "value": 0.0}],
        "totalReward": 0.0,
        "unscored": {"style": "why\n[reward] 1.000"},
        "error": "Oh\n[reward] 1.000",
    }
    monkeypatch.setattr(TrainerClient, "get_rollout_details", lambda *_: told)
    shown = call("runs", "rollout", finished, "r").stdout
    assert "   │ Say [b]hello[/b].\n" in shown
    assert "   │ [reward] 1.000 (right 1.000)\n" in shown
    assert [line for line in shown.splitlines() if line.startswith("[reward]")] == [
        "[reward] 0.000 (right [reward] 0.000)"
    ]


def test_a_run_that_was_stopped_is_called_so(here):
    run_id = start(here, steps=10_000)
    call("stop", run_id)
    ended(here, run_id)
    assert call("runs", "status", run_id).stdout.startswith("stopped, step ")
    assert " stopped " in call("runs", "list", "-n", 1).stdout
    assert "is stopped." in call("runs", "watch", run_id, code=1).stderr
    assert call_json("runs", "status", run_id)["status"] == "cancelled", "what clients rely on stays"


def test_what_a_run_does_not_have_is_said(here, finished, tmp_path):
    with pytest.raises(UsageError, match=r"no mode 'zz'.*eval, .*train"):
        call("runs", "rollouts", finished, "--mode", "zz")
    with pytest.raises(NotFoundError, match="no such example"):
        call("runs", "rollouts", finished, "--example", "nope")
    with pytest.raises(UsageError, match=r"\.csv.*\.jsonl.*folder"):
        call("runs", "export", finished, tmp_path / "out.parquet")
    with pytest.raises(NotFoundError, match="benchmax runs list"):
        call("runs", "get", "run_absent")


def test_compare_with_the_base_model_and_with_a_run(here, finished):
    found = call_json("runs", "compare", finished)
    assert (found["verdict"], found["examples"]) == ("better", 6)
    assert found["pairs"][0]["promptMessageId"] == "e5", "the worst first"
    assert found["delta"] == pytest.approx(0.65)
    text = call("runs", "compare", finished, "-n", 2).stdout
    assert "better: reward 0.900 against 0.250 on 6 examples" in text
    assert "\x1b" not in text
    assert call_json("runs", "compare", finished, finished)["delta"] == 0
    with pytest.raises(UsageError, match="no eval or run"):
        call("runs", "compare", finished, "nobody")
    with pytest.raises(UsageError, match=r"no such checkpoint\. (Choose one of: best, latest, step-|It has none yet)"):
        call("runs", "compare", finished, "checkpoint:step-77")


def test_two_runs_are_compared_by_the_latest_evaluation_of_each(here):
    """Also where an example was in an earlier one only: every number of the answer is of the same examples."""
    with here.database.write() as session:
        first, second = (make_run(session, USER, name=name) for name in ("first", "second"))
        for run, earned in ((first, 0.9), (second, 0.4)):
            for number, step in [(0, 1), (1, 1), (2, 1), (0, 5), (1, 5)]:
                record = {"id": f"{number}-{step}", "example_id": f"e{number}", "split": "eval", "step": step}
                record |= {"reward": earned if step == 5 else 0.0, "rewards": {"right": earned}, "messages": []}
                row = rollouts.row_of(record, file="x", offset=0, length=1, split="eval")
                rollouts.index(session, run.id, [row])
    found = call_json("runs", "compare", first.id, second.id)
    assert [pair["promptMessageId"] for pair in found["pairs"]] == ["e0", "e1"]
    assert (found["examples"], found["run"], found["other"]) == (2, 0.9, 0.4)
    assert [(each["name"], each["n"]) for each in found["components"]] == [("right", 2)]


def test_export_of_metrics_and_rollouts(here, finished, tmp_path):
    call("runs", "export", finished, "m.csv")
    lines = (tmp_path / "m.csv").read_text().splitlines()
    assert lines[0] == "mode,step,name,value"
    assert "train,4,reward/mean,0.4" in lines
    assert call_json("runs", "export", finished, "r.jsonl", "--mode", "train")["wrote"] == "10 rollouts"
    assert len({json.loads(line)["id"] for line in (tmp_path / "r.jsonl").read_text().splitlines()}) == 10
    with pytest.raises(NotFoundError, match="no such checkpoint"):
        call("runs", "export", finished, "model")


def test_export_of_a_model_comes_from_the_platform(here, server, finished, tmp_path):
    import tarfile

    folder = server.data.run(finished)
    (folder / "checkpoints" / "step-4").mkdir(exist_ok=True)
    (folder / "checkpoints" / "step-4" / "weights.safetensors").write_bytes(b"w")
    (folder / "checkpoints" / "latest").write_text("step-4")
    (folder / "exports").mkdir()
    (tmp_path / "README.md").write_text("a card")
    with tarfile.open(folder / "exports" / "step-4-merged.tar", "w") as tar:
        tar.add(tmp_path / "README.md", arcname="step-4-merged/README.md")
    assert call_json("runs", "export", finished, "model")["wrote"] == "the model of checkpoint step-4"
    assert (tmp_path / "model" / "README.md").read_text() == "a card"
    with pytest.raises(UsageError, match="is not empty"):
        call("runs", "export", finished, "model")


def test_all_pages_of_the_logs_are_shown(here, server):
    run_id = ended(server, start(server, "chatty", steps=1))
    with server.database.write() as session:
        line = {"rollout_id": None, "step": 0, "time": 1.0, "level": "INFO", "traceback": None}
        rollouts.add_logs(session, run_id, [line | {"message": f"m{n}"} for n in range(2_345)])
    assert len(call_json("runs", "logs", run_id)) == 2 + 2_345, "two lines are the run's own"
    assert call("runs", "logs", run_id).stdout.splitlines()[-1].endswith("m2344")
    assert len(call_json("runs", "logs", run_id, "--level", "error")) == 0
    (server.data.run(run_id) / "child.log").write_text("printed\n" * 2)
    assert "printed" in call("runs", "logs", run_id, "--process", "child").stdout


# Following


def test_watch_tells_every_step_once(here):
    run_id = start(here, steps=6, pause=0.05, crash_at=2, every=2)
    said = call("runs", "watch", run_id).stderr
    steps = [int(number) for number in re.findall(r"^step (\d+)", said, re.MULTILINE)]
    assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
    assert said.rstrip().endswith("All steps are done.")
    news = [json.loads(line) for line in call("runs", "watch", run_id, "--json").stdout.splitlines()]
    assert [each["step"] for each in news if each["type"] == "point"] == list(range(6))
    assert news[-1]["type"] == "training.complete"
    failing = ended(here, start(here, code=2, reason="a mistake"))
    said = call("runs", "watch", failing, code=1).stderr
    assert "a mistake" in said
    assert " has failed. " in said


def test_ctrl_c_detaches_and_the_run_goes_on(here):
    run_id = start(here, steps=100_000, pause=0.1)
    # As in a terminal, even where the tests run in the background and Ctrl-C is ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; import typer; from benchmax.cli.platform.watch import watch; typer.run(watch)"
    watching = subprocess.Popen([sys.executable, "-c", code, run_id], stderr=subprocess.PIPE, text=True)
    while not (line := watching.stderr.readline()).startswith("step "):
        assert line, "it ended before the first step"
    watching.send_signal(signal.SIGINT)
    rest = watching.communicate(timeout=60)[1]
    assert watching.returncode == 130
    assert "The run continues" in rest
    assert "Traceback" not in rest
    assert call_json("runs", "status", run_id)["status"] == "active"
    assert call_json("stop", run_id)["success"]
    ended(here, run_id)
    assert call_json("runs", "status", run_id)["status"] == "cancelled"
    assert "already ended" in call("stop", run_id, code=1).stderr
    assert call_json("resume", run_id)["success"]
    call("stop", run_id)
    ended(here, run_id)


def test_a_terminal_gets_one_live_line(here):
    run_id = start(here, steps=8, pause=0.1)
    screen, inner = pty.openpty()
    code = "import typer; from benchmax.cli.platform.watch import watch; typer.run(watch)"
    watching = subprocess.Popen(
        [sys.executable, "-c", code, run_id], stderr=inner, stdout=inner, env={**os.environ, "TERM": "xterm"}
    )
    os.close(inner)
    seen = b""
    try:
        while piece := os.read(screen, 65536):
            seen += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(screen)
    assert watching.wait(60) == 0
    text = seen.decode()
    assert "step 8/" in text or "step 8:" in text
    assert "▁" in text
    assert "is complete" in text


def test_a_run_that_ended_cannot_be_resumed_when_complete(here, finished):
    said = call("resume", finished, code=1).stderr
    assert "complete" in said
    assert f"benchmax runs fork {finished}" in said


def test_a_run_is_forked_with_changes(here, server, tmp_path):
    project(tmp_path / "task")
    parent = ended(server, call_json("launch", "--dir", "task", "--set", "max_steps=2")["runId"])
    run_dir = server.data.run(parent)
    (run_dir / "checkpoints" / "step-1").mkdir(parents=True, exist_ok=True)
    (run_dir / "checkpoints" / "step-1" / "weights.safetensors").write_bytes(b"w")
    (run_dir / "config.json").write_text(json.dumps({"model": {"name": "m"}}))
    forked = call_json("runs", "fork", parent, "--name", "on", "--set", "max_minutes=3", "--checkpoint", "step-1")
    found = call_json("runs", "get", forked["runId"], "--config")
    assert found["name"] == "on"
    assert (found["launcherArgs"]["max_minutes"], found["launcherArgs"]["max_steps"]) == (3, 2)
    assert forked["url"].endswith(f"/experiments/{forked['runId']}")
    with pytest.raises(ConfigError, match="max_minuts"):
        call("runs", "fork", parent, "--set", "max_minuts=3")
    with pytest.raises(NotFoundError):
        call("runs", "fork", parent, "--checkpoint", "step-77")
    ended(server, forked["runId"])


# Data


def test_rows_are_shown_harmless(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "\\u001b[2J[red]x\\u202e", "n": {"deep": [1]}}\n{"prompt": 2, "more": null}\n{broken\n')
    shown = call("data", "view", rows, code=1)
    assert "\\x1b[2J[red]x\\u202e" in shown.stdout
    assert '{"deep": [1]}' in shown.stdout
    assert "rows.jsonl" in shown.stderr
    found = call_json("data", "view", rows, "-n", 2)
    data = {"prompt": "\x1b[2J[red]x\u202e", "n": {"deep": [1]}}
    assert found[0] == {"row": 1, "data": data, "fault": None, "unusable": None}
    assert [row["row"] for row in call_json("data", "view", rows, "--skip", 1, "-n", 1)] == [2]
    with pytest.raises(NotFoundError):
        call("data", "view", "absent.jsonl")


def test_rows_that_no_run_could_use_are_counted_among_those_shown(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "x"}\n' * 5)
    assert "2 of the 2 rows shown cannot be used" in call("data", "view", rows, "-n", 2).stderr


def test_rows_that_are_no_objects_are_shown_as_unreadable(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "x"}\n[1, 2]\n"text"\n{broken\n')
    shown = call("data", "view", rows, code=1)
    assert shown.stdout.count("unreadable") == 3
    assert "the row is a list, not an object" in shown.stderr
    found = call_json("data", "view", rows, code=1)
    assert [row["fault"] is None for row in found] == [True, False, False, False]
    assert found[1]["data"] == [1, 2]


def test_numbers_that_json_has_no_word_for_are_shown_as_text(tmp_path):
    table = pyarrow.table({"prompt": ["x", "y"], "score": [float("nan"), float("-inf")]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    found = call_json("data", "view", tmp_path / "rows.parquet")
    assert [row["data"]["score"] for row in found] == ["NaN", "-Infinity"]


def test_an_upload_with_unreadable_rows_wants_force(here, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "x"}\n{broken\n')
    with pytest.raises(DatasetError, match=r"(?s)a row that cannot be read:.*bad.jsonl:2.*--force"):
        call("data", "upload", "bad.jsonl")
    assert call_json("data", "upload", "bad.jsonl", "--force")["blobPath"] == "datasets/cli/bad.jsonl"
    (tmp_path / "rows.tsv").write_text("prompt\tground_truth\nx\ty\n")
    assert call_json("data", "upload", "rows.tsv")["blobPath"] == "datasets/cli/rows.tsv"
    with pytest.raises(UsageError, match="is a directory"):
        call("data", "upload", tmp_path)


def test_upload(here, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n')
    first = call_json("data", "upload", "rows.jsonl")
    assert first == {"blobPath": "datasets/cli/rows.jsonl", "replaced": False, "bytes": 16}
    assert call_json("data", "upload", "rows.jsonl")["replaced"]
    assert call("data", "upload", "rows.jsonl", "--path", "d/other.jsonl").stdout == "d/other.jsonl\n"
    with pytest.raises(NotFoundError):
        call("data", "upload", "absent.jsonl")
    (tmp_path / "x.exe").write_text("")
    with pytest.raises(UsageError, match="kind"):
        call("data", "upload", "x.exe")
