"""The SDK's own behaviour, against a server that follows a script: retries, errors, streams, launch arguments."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmax import config
from benchmax.envs.base_env import BaseEnv
from benchmax.errors import ConfigError, DatasetError, UsageError
from benchmax.platform.client import AsyncTrainerClient, RolloutClient, StorageClient, TrainerClient, ValidationResult
from benchmax.platform.exceptions import (
    AuthenticationError,
    JobLaunchError,
    RolloutError,
    RolloutNotFound,
    RolloutStreamError,
    TrainerError,
)
from benchmax.platform.sdk import credentials, transport
from benchmax.platform.sdk.rollout_client import ExampleValidation
from benchmax.platform.sdk.static_export import export_static
from benchmax.platform.training_run import upload_training_run
from benchmax.platform.wire.launch_args import TABLE
from benchmax.platform.wire.launches import WHEN_HIGH, LaunchArg, SftDataset, check_launch_args


class Scripted:
    """Answers each request with the next of `answers`: (status, body, headers)."""

    def __init__(self):
        self.answers, self.seen = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                headers = {name.lower(): value for name, value in self.headers.items()}
                size = int(self.headers.get("content-length") or 0)
                outer.seen.append((self.command, self.path, headers, self.rfile.read(size)))
                status, body, headers = outer.answers.pop(0)
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def script(self, *answers):
        self.answers[:] = [(*answer, {}) if len(answer) == 2 else answer for answer in answers]
        self.seen.clear()


@pytest.fixture(scope="module")
def scripted():
    server = Scripted()
    yield server
    server.server.shutdown()
    server.thread.join()
    server.server.server_close()


@pytest.fixture
def waits(monkeypatch):
    """The waits between tries, not slept."""
    found, slept, here = [], time.sleep, threading.current_thread()

    def sleep(seconds):  # other threads of this process sleep as they did
        found.append(seconds) if threading.current_thread() is here else slept(seconds)

    monkeypatch.setattr(transport.time, "sleep", sleep)  # the client's too: it is one module
    return found


@pytest.fixture
def trainer(scripted):
    with TrainerClient("sk_test", scripted.url + "/") as client:
        yield client


def test_reads_are_tried_three_times_and_honour_retry_after(scripted, trainer, waits):
    scripted.script((503, {"error": "busy"}), (429, {"error": "slow"}, {"Retry-After": "7"}), (200, []))
    assert trainer.list_runs() == []
    assert len(scripted.seen) == 3
    assert waits[1] == 7
    assert scripted.seen[0][2]["authorization"] == "Bearer sk_test"


def test_the_budget_ends_the_tries(scripted, trainer, waits):
    scripted.script((429, {"error": "slow down"}, {"Retry-After": "60"}))
    with pytest.raises(TrainerError, match=r"slow down \(429\)"):
        trainer.list_runs()
    assert waits == []


def test_what_changes_something_is_never_repeated(scripted, trainer, waits):
    scripted.script((503, {"error": "busy"}))
    with pytest.raises(TrainerError, match="busy"):
        trainer.cancel_run("r")
    assert len(scripted.seen) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"error": "bad key"}, AuthenticationError, "bad key (401)"),
        (403, {"error": "not yours"}, TrainerError, "not yours (403)"),
        (404, b"plain text", TrainerError, "plain text (404)"),
        (400, b"", TrainerError, "no reason"),
        (200, b"<html>", TrainerError, "not JSON"),
        (200, {"a": 1}, TrainerError, "not a list"),
    ],
)
def test_answers_become_errors_with_the_servers_words(scripted, trainer, status, body, kind, words):
    scripted.script((status, body))
    with pytest.raises(kind) as caught:
        trainer.list_runs()
    assert type(caught.value) is kind
    assert words in str(caught.value)


@pytest.mark.parametrize("body", [{}, [], {"args": 5}, {"args": [{}]}, None])
def test_an_answer_without_what_was_asked_for_is_an_error_of_the_sdk(scripted, trainer, body):
    for call in (trainer.list_launch_args, lambda: trainer.launch_environment("math")):
        scripted.script((200, body))
        with pytest.raises(TrainerError, match="client and server fit together"):
            call()
    scripted.script((200, body))
    with pytest.raises(JobLaunchError, match="client and server fit together"):
        trainer.launch_training_run("simple", "a", "b", "c", "d")


@pytest.mark.parametrize("address", ["http://[::1", "localhost:8321", "http://", "http://host:port", "/x"])
def test_an_address_that_is_none_is_refused_at_once(address):
    for kind in (TrainerClient, StorageClient, RolloutClient, AsyncTrainerClient):
        with pytest.raises(TrainerError, match="not a web address"):
            kind("sk_test", address)


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(JobLaunchError("no", 400)))
    assert (str(error), error.status_code) == ("no", 400)


def test_paths_and_ids_are_quoted(scripted, trainer):
    scripted.script((200, {}), (200, {}))
    trainer.get_run("../../x?y")
    trainer.get_rollout_details("r", "a/b#c")
    assert [seen[1] for seen in scripted.seen] == [
        "/v1/train/runs/..%2F..%2Fx%3Fy",
        "/v1/train/runs/r/rollouts/a%2Fb%23c/details",
    ]


def test_the_launch_body_is_the_published_one(scripted, trainer):
    paths = {
        name: f"p/{name}" for name in ("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path")
    }
    scripted.script((202, {"runId": "r1"}), (200, {"runId": "r2"}))
    assert (
        trainer.launch_training_run("simple", **paths, name="n", launcher_args={"a": 1, "env_cls_path": "no"}) == "r1"
    )
    assert json.loads(scripted.seen[0][3]) == {"type": "simple", "name": "n", "args": {"a": 1, **paths}}
    trainer.launch_training_run(**paths)
    assert "type" not in json.loads(scripted.seen[1][3])


def test_envelopes_of_a_summary_are_opened(scripted, trainer):
    rows = [{"promptMessageId": "a"}]
    scripted.script((200, rows), *((200, {name: rows}) for name in ("data", "items", "results", "rollouts", "groups")))
    assert [trainer.get_rollout_summary("r") for _ in range(6)] == [rows] * 6


def test_an_upload_is_sent_again_to_a_new_address(scripted, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"{}\n")

    def permit(n):
        return 200, {"uploadUrl": f"{scripted.url}/put/{n}", "expiresAt": "", "blobPath": "a", "willOverwrite": False}

    scripted.script(permit(1), (503, {"error": "busy"}), permit(2), (201, b""))
    with StorageClient("sk_test", scripted.url) as storage:
        assert storage.upload_local_file("a", file)["blobPath"] == "a"
    puts = [seen for seen in scripted.seen if seen[0] == "PUT"]
    assert [put[1] for put in puts] == ["/put/1", "/put/2"]
    assert puts[1][3] == b"{}\n"
    headers = puts[1][2]
    assert headers["x-ms-blob-type"] == "BlockBlob"
    assert headers["content-type"] == "application/jsonl"
    assert "authorization" not in headers


def sse(*events):
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_a_rollout_is_followed_to_its_end(scripted):
    with RolloutClient("sk_test", scripted.url) as client:
        scripted.script(
            (
                200,
                b": ping\n\n"
                + sse(
                    {"event": "rollout_started"},
                    {"event": "message", "message": {"role": "assistant", "content": "hi"}},
                    {"event": "reward", "rewards": {"a": 1.0}},
                    {"event": "rollout_completed", "success": True},
                ),
            )
        )
        result = client.stream_rollout({"prompt": "x"}, "c", "m", full_messages=True)
        assert result["rewards"] == {"a": 1.0}
        assert result["messages"] == [{"role": "assistant", "content": "hi"}]
        body = json.loads(scripted.seen[0][3])
        assert body["standardized_example"] is None
        assert body["raw_example"] == {"prompt": "x"}
        assert body["env"] == {"env_cls_path": "c", "env_metadata_path": "m"}
        assert set(body["llm"]) == {"base_url", "api_key", "model", "api-version"}
        assert body["options"] == {"max_turns": 4, "max_tool_calls": 8, "max_completion_tokens": 4024}
        scripted.script((200, sse({"event": "rollout_started"})))
        with pytest.raises(RolloutStreamError, match="before the rollout did"):
            client.stream_rollout({}, "c", "m")
        for status, kind in [(403, AuthenticationError), (404, RolloutNotFound), (409, RolloutError)]:
            scripted.script((status, {"error": "no"}))
            with pytest.raises(kind):
                client.stream_rollout({}, "c", "m")


def test_examples_are_validated_with_one_retry_and_a_group(scripted, capsys):
    good = {"event": "rollout_completed", "success": True, "rewards": {"a": 1.0}}
    bad = {"event": "rollout_completed", "success": False, "error": "reward failed"}
    group = [good, {**good, "group_reward_error": "wrong length"}, {"event": "batch_completed"}]
    scripted.script(
        (200, sse({"event": "worker_error"})),
        (200, sse(good)),
        (200, sse(bad)),
        (200, sse({"event": "batch_started", "total": 2}, *group)),
    )
    with RolloutClient("sk_test", scripted.url) as client:
        result = client.validate_examples([{"prompt": n} for n in range(5)], "c", "m")
    assert [example.ok for example in result.examples] == [True, False]
    assert result.examples[1].error == "reward failed"
    assert result.group_reward.error == "wrong length"
    assert not result
    assert "✗ example 1: reward failed" in capsys.readouterr().out
    assert ValidationResult([ExampleValidation(0, True)])
    assert not ValidationResult()


@pytest.mark.parametrize("value", [float("nan"), b"x", {1}, ...])
def test_an_example_that_is_not_json_is_named_before_anything_is_sent(scripted, value):
    with RolloutClient("sk_test", scripted.url) as client:
        scripted.script()
        for play in (client.stream_rollout, partial(client.run_group, samples=2)):
            with pytest.raises(DatasetError, match=r"v: is .* not JSON"):
                play({"v": value}, env_cls_path="c", env_metadata_path="m")
            with pytest.raises(DatasetError, match="not an object"):
                play([value], env_cls_path="c", env_metadata_path="m")
    assert not scripted.seen


def test_the_platforms_key_is_only_sent_to_the_platforms_model(scripted):
    event = sse({"event": "rollout_completed", "success": True})
    with RolloutClient("sk_test", scripted.url) as client:
        for address in (f"{scripted.url}/v1", "http://[::1"):  # the latter is for the server to refuse
            scripted.script((200, event))
            client.stream_rollout({}, "c", "m", llm_base_url=address, llm_api_key="sk_test")
        with pytest.raises(UsageError, match="not sent to elsewhere"):
            client.stream_rollout({}, "c", "m", llm_base_url="https://elsewhere/v1", llm_api_key="sk_test")


def test_rollouts_recorded_meanwhile_are_not_listed_twice(scripted, trainer, monkeypatch):
    """A new one moves the last of each page to the next."""
    monkeypatch.setattr("benchmax.platform.sdk.requests.rollouts.PAGE", 2)
    pages = [["d", "c"], ["c", "b"], ["a"]]
    scripted.script(*[(200, {"data": [{"id": each} for each in page]}) for page in pages])
    assert [each["id"] for each in trainer.iter_rollouts("r")] == ["d", "c", "b", "a"]


def test_a_supervised_launch_names_a_file_or_a_folder(scripted, trainer):
    for path, dataset in {
        "datasets/chats": {"path": "datasets/chats"},
        "datasets/v1.2": {"path": "datasets/v1.2"},
        "datasets/A.CSV": {"path": "datasets/A.CSV", "format": "csv"},
    }.items():
        scripted.script((200, {"runId": "run_1"}))
        assert trainer.launch_sft_run(path) == "run_1"
        assert json.loads(scripted.seen[0][3])["dataset"] == dataset
        assert SftDataset.model_validate(dataset)


def test_a_feed_that_breaks_goes_on_after_the_last_id(scripted, trainer, waits):
    scripted.script(
        (200, sse({"id": 4, "type": "points"}), {"Content-Length": "999", "Connection": "close"}),
        (503, {"error": "the server starts again"}),
        (200, sse({"id": 5, "type": "points"})),
        (200, sse({"id": 7, "type": "points"}, {"type": "end"})),
    )
    assert [event["id"] for event in trainer.stream_run("r")] == [4, 5, 7]
    assert [seen[2]["last-event-id"] for seen in scripted.seen] == ["0", "4", "4", "5"]
    scripted.script(*[(200, b"")] * 6)
    with pytest.raises(TrainerError, match="broke off"):
        list(trainer.stream_run("r"))


def test_waiting_for_a_run_ends_or_times_out(scripted, trainer, monkeypatch):
    monkeypatch.setattr("benchmax.platform.sdk.transport.time.sleep", lambda _: None)
    run = trainer.run("r")
    scripted.script((200, {"status": "active"}), (200, {"status": "failed"}))
    assert run.wait() == "failed"
    scripted.script((200, {"status": "pending"}))
    with pytest.raises(TimeoutError, match="still pending"):
        run.wait(seconds=0)


def test_a_session_that_has_ended_is_closed_without_an_error(scripted, trainer):
    scripted.script((201, {"id": "ses_1"}), (404, {"error": "There is no such session"}))
    with trainer.playground("r") as session:
        pass
    assert [seen[0] for seen in scripted.seen] == ["POST", "DELETE"]
    scripted.script((403, {"error": "not yours"}))
    with pytest.raises(TrainerError, match="not yours"):
        session.close()


def test_a_wait_outlasts_a_restart_of_the_platform(scripted, trainer, waits, monkeypatch):
    run, busy = trainer.run("r"), (503, {"error": "restarting"})
    scripted.script((200, {"status": "active"}), *[busy] * 6, (200, {"status": "complete"}))
    assert run.wait() == "complete"
    scripted.script(*[busy] * 3)
    with pytest.raises(TrainerError, match="restarting"):
        run.wait()  # it has never answered
    scripted.script((200, {"status": "active"}), (404, {"error": "no such run"}))
    with pytest.raises(TrainerError, match="no such run"):
        run.wait()
    monkeypatch.setattr(transport, "AWAY_SECONDS", 0.0)
    scripted.script((200, {"status": "active"}), *[busy] * 3)
    with pytest.raises(TrainerError, match="restarting"):
        run.wait()


# Where and who


def test_the_platforms_address(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path))
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(tmp_path / "session.json"))
    monkeypatch.setenv("BENCHMAX_NO_AUTO_START", "1")
    for name in ("BENCHMAX_PLATFORM_URL", "CASTFORM_PLATFORM_URL", "CASTFORM_BASE_DOMAIN", "CASTFORM_AUTH_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="NO_AUTO_START"):
        credentials.base_url()  # the hosted service is not used unasked
    assert credentials.auth_base("https://api.castform.com") == "https://auth.castform.com"
    assert credentials.auth_base("http://127.0.0.1:1") == "http://127.0.0.1:1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "server.json").write_text(json.dumps({"url": url, "pid": 2**30}))
        with pytest.raises(ConfigError):
            credentials.base_url()  # that process is gone
        (tmp_path / "server.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        assert credentials.base_url() == url
    monkeypatch.setenv("CASTFORM_BASE_DOMAIN", "castform.com")
    assert credentials.base_url() == "https://api.castform.com"  # named, so meant
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", "http://10.0.0.1:1/")
    assert credentials.base_url() == "http://10.0.0.1:1"
    assert credentials.base_url("http://given/") == "http://given"


def test_a_login_that_is_refused_or_late_says_so(scripted, monkeypatch, tmp_path):
    monkeypatch.setenv("CASTFORM_CREDENTIALS_PATH", str(tmp_path / "c.json"))
    code = {
        "device_code": "d",
        "user_code": "U",
        "verification_uri_complete": "http://x",
        "expires_in": 60,
        "interval": 1,
    }
    slept = []
    scripted.script((200, code), (400, {"error": "slow_down"}), (400, {"error": "access_denied"}))
    with pytest.raises(AuthenticationError, match="access_denied"):
        credentials.login(scripted.url, say=lambda _: None, sleep=slept.append)
    assert slept == [1, 6]
    scripted.script((200, {**code, "expires_in": -1}))
    with pytest.raises(AuthenticationError, match="in time"):
        credentials.login(scripted.url, say=lambda _: None, sleep=slept.append)
    with pytest.raises(TrainerError, match="Cannot reach"):
        credentials.login("http://127.0.0.1:9", say=lambda _: None)


def test_a_sign_in_needs_no_more_than_the_standard_asks_of_a_server(scripted, monkeypatch, tmp_path):
    """RFC 8628: `verification_uri_complete` and `interval` are optional."""
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(tmp_path / "session.json"))
    code = {"device_code": "d", "user_code": "ABC", "verification_uri": "http://page", "expires_in": 60}
    for more in ({}, {"verification_uri_complete": None, "interval": None}):
        said = []
        scripted.script((200, code | more), (200, {"access_token": "t"}))
        credentials.login(scripted.url, say=said.append, sleep=lambda seconds: None)
        assert said == ["Open http://page and confirm the code ABC."]
    scripted.script((200, {"user_code": "ABC"}))
    with pytest.raises(TrainerError, match="without device_code"):
        credentials.login(scripted.url)
    credentials.write_castform_session({"url": f"{scripted.url}/", "access_token": "s"})
    scripted.script((200, {"token": "bearer"}))
    assert credentials.bearer(None, None, scripted.url) == "bearer"


def test_a_platform_that_is_not_there_is_told_without_the_trace_of_the_library():
    with pytest.raises(TrainerError, match="Cannot reach") as caught:
        TrainerClient("sk_x", base_url="http://127.0.0.1:9").cancel_run("run_1")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


# Launch arguments

SPECS = [
    LaunchArg(name="lr", label="", type="number", description="", min=0.1, max=1, default=0.5),
    LaunchArg(name="steps", label="", type="integer", description="", min=1, max=10),
    LaunchArg(name="learning_rate", label="", type="number", description="", warn_above=0.005),
    LaunchArg(name="fast", label="", type="boolean", description=""),
    LaunchArg(name="model", label="", type="string", description="", required=True, enum=["a", "b"]),
]


def test_launch_arguments_are_completed_and_warned_about():
    args, warned = check_launch_args(SPECS, {"steps": 6, "model": "a", "learning_rate": 0.01})
    assert args == {"lr": 0.5, "steps": 6, "learning_rate": 0.01, "fast": None, "model": "a"}
    assert warned == ["learning_rate = 0.01 is above 0.005; training may diverge."]


def test_a_high_value_is_warned_of_in_words_of_its_own():
    assert {row.name for row in TABLE if row.warn_above is not None} == set(WHEN_HIGH)
    arguments = Path(__file__).parents[3] / "console/src/pages/newrun/Arguments.tsx"
    assert all(f'{name}: "{text}"' in arguments.read_text() for name, text in WHEN_HIGH.items())


def test_a_launch_argument_that_is_null_was_not_given():
    args, _ = check_launch_args(SPECS, {"lr": None, "steps": None, "model": "a"})
    assert args == {"lr": 0.5, "steps": None, "learning_rate": None, "fast": None, "model": "a"}


def test_a_name_of_another_version_leads_to_ours():
    specs = [LaunchArg(name=name, label="", type="integer", description="") for name in ("max_new", "max_rollout_len")]
    for name in ("max_context_tokens", "max_response_len"):
        with pytest.raises(ConfigError, match=f"{name}.*max_rollout_len"):
            check_launch_args(specs, {name: 1})


def test_all_mistakes_in_launch_arguments_are_told_at_once():
    wrong = {"lr": 2, "steps": 1.5, "fast": "yes", "modle": "a", "save": 1, "zzz": None}
    with pytest.raises(ConfigError) as caught:
        check_launch_args(SPECS, wrong)
    for words in (
        "lr must be from 0.1 to 1, not 2",
        "steps must be a whole number",
        "fast must be true or false",
        "did you mean model?",
        "save is set by the server",
        "--list-args` lists them",
        "model is required",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1", [1]])
def test_a_number_is_a_finite_number(value):
    with pytest.raises(UsageError, match="must be a number"):
        check_launch_args(SPECS, {"lr": value, "model": "a"})


@pytest.mark.parametrize("name", [None, 5, "", "x" * 1000])
def test_a_run_without_a_usable_name_is_refused_in_our_words(name):
    rows = [{"prompt": "p", "ground_truth": "g"}] * 16
    with pytest.raises(UsageError, match=r"run_name is .*1 to 200 characters"):
        upload_training_run(env_class=BaseEnv, train_dataset=rows, eval_dataset=rows, run_name=name)


def test_the_sdk_is_light():
    code = (
        "import sys, time, benchmax.platform.client, benchmax.platform.training_run\n"
        "heavy = [m for m in ('torch', 'fastapi', 'sqlalchemy', 'pandas', 'httpx2', 'rich') if m in sys.modules]\n"
        "print(heavy, time.process_time() < 20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


# Where a run is


def test_the_page_of_a_run_is_named_where_published_scripts_print_another(scripted, capsys, monkeypatch):
    paths = dict.fromkeys(("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path"), "p")
    scripted.script(
        (200, {"runId": "run_1"}), (200, {"runId": "run_2", "warnings": ["few rows"]}), (200, {"runId": "run_3"})
    )
    with TrainerClient("sk_x", scripted.url) as trainer:
        assert trainer.launch_training_run(**paths) == "run_1"
        assert capsys.readouterr() == ("", f"The run is at {scripted.url}/experiments/run_1\n")
        assert trainer.queue_run(**paths) == ("run_2", ["few rows"])
        assert capsys.readouterr() == ("", "")
        assert config.PUBLISHED_URL == "https://api.castform.com"
        monkeypatch.setattr(config, "PUBLISHED_URL", scripted.url)
        assert trainer.launch_training_run(**paths) == "run_3"
        assert capsys.readouterr() == ("", ""), "there, what they print is right"


async def test_warnings_of_the_platform_point_at_the_launch(scripted):
    paths = dict.fromkeys(("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path"), "p")
    scripted.script(*[(200, {"runId": "run_1", "warnings": ["few rows"]})] * 2)
    with TrainerClient("sk_x", scripted.url) as trainer, pytest.warns(UserWarning, match="few rows") as blocking:
        trainer.launch_training_run(**paths)
    async with AsyncTrainerClient("sk_x", scripted.url) as trainer:
        with pytest.warns(UserWarning, match="few rows") as awaited:
            await trainer.launch_training_run(**paths)
    assert [each.filename for each in (*blocking, *awaited)] == [__file__, __file__]


# A sign-in of another client


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_what_another_client_kept_does_not_lock_this_one_out(scripted, monkeypatch, tmp_path, mode):
    session = tmp_path / "session.json"
    session.write_text(json.dumps({"access_token": "of the published client"}))
    session.chmod(mode)
    own = tmp_path / "credentials.json"
    own.write_text(json.dumps({"url": scripted.url, "api_key": "sk_own"}))
    own.chmod(0o600)
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(session))
    monkeypatch.setenv("BENCHMAX_DATA", str(tmp_path))
    for name in ("BENCHMAX_API_KEY", "CASTFORM_API_KEY", "PLATFORM_API_KEY", "CASTFORM_BASE_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    scripted.script()
    assert credentials.bearer(None, None, scripted.url) == "sk_own"
    assert scripted.seen == [], "its token is shown to nobody else"
    asked = []
    monkeypatch.setattr(credentials, "_request", lambda *words, **more: asked.append(words) or Answer())
    if mode == 0o600:
        assert credentials.bearer(None, None, "https://api.castform.com") == "a-bearer"
        assert asked == [("GET", "https://auth.castform.com/api/auth/token")]


def test_a_sign_in_is_exchanged_once_for_several_requests(scripted, monkeypatch, tmp_path):
    session = tmp_path / "session.json"
    session.write_text(json.dumps({"url": scripted.url, "access_token": "one"}))
    session.chmod(0o600)
    monkeypatch.setenv("BENCHMAX_CREDENTIALS_PATH", str(session))
    for name in ("BENCHMAX_API_KEY", "CASTFORM_API_KEY", "PLATFORM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    answers = [(200, {"runs": []}), (200, {"runs": []}), (200, {"token": "second"}), (200, {"runs": []})]
    scripted.script((200, {"token": "first"}), *answers)
    with TrainerClient(base_url=scripted.url) as trainer:
        trainer.list_runs()
        trainer.list_runs()
        credentials.keep_session(scripted.url, "two")
        trainer.list_runs()
    asked = [(path, headers["authorization"].removeprefix("Bearer ")) for _, path, headers, _ in scripted.seen]
    runs, token = "/v1/train/runs", "/api/auth/token"
    assert asked == [(token, "one"), (runs, "first"), (runs, "first"), (token, "two"), (runs, "second")]


class Answer:
    status_code = 200

    def json(self):
        return {"token": "a-bearer"}


def test_a_folder_in_use_is_refused_before_anything_is_asked(scripted, trainer, tmp_path):
    file, console = tmp_path / "file", tmp_path / "console"
    file.write_text("")
    console.mkdir()
    (console / "console.js").write_text("")
    for taken in (file, console):
        with pytest.raises(UsageError, match="is not empty"):
            export_static(trainer, "run_1", taken, console=console)
        with pytest.raises(UsageError, match="is not empty"):
            trainer.download_checkpoint("run_1", taken)
    with TrainerClient("sk_test", "http://127.0.0.1:9") as gone, pytest.raises(TrainerError, match="Cannot reach"):
        gone.download_checkpoint("run_1", tmp_path / "new")
