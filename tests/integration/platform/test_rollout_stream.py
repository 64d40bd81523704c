"""Rollouts streamed by the platform: the environment in a child of the runner, the model at an endpoint."""

import base64
import json
import os
import signal
import threading
from dataclasses import asdict

import pytest
from aiohttp import web

from benchmax.envs.base_env import BaseEnv
from benchmax.platform.client import RolloutClient, StorageClient
from benchmax.platform.exceptions import RolloutError, RolloutNotFound
from benchmax.platform.store.queue import live_sessions
from benchmax.platform.validation import validate_env
from benchmax.trainer.tiny_model import make_tiny
from living import content, files_under
from runner_world import is_running, wait_until
from session_world import CounterEnv, bundled, events_of, fake_model, supervised

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

EXAMPLE = {"prompt": "Count to one.", "answer": "count 1"}


class GroupEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"length": float(len(messages[-1]["content"]))}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        return [{"rank": float(index)} for index, _ in enumerate(rollout_ids)]


class BrokenGroupEnv(GroupEnv):
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        raise RuntimeError("no order")


class DyingEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import os

        os._exit(3)


class CannotOpen(BaseEnv):
    def __init__(self, **kwargs):
        raise RuntimeError("no key here")

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {}


class SecretEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import os

        return {"own": float("JUDGE_KEY" in os.environ), "server": float("OPENAI_API_KEY" in os.environ)}


def counting(body):
    """Calls the tool once, then repeats what it gave."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return last["content"]
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    ]}  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with supervised(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture(scope="module")
def key(live):
    return live.user()[1]


def wire_env(env_class, **options):
    return {name: base64.b64encode(value).decode() for name, value in bundled(env_class, **options).items()}


def open_sessions(live):
    return [each for each in live_sessions.every(live.data) if each.status != "ended"]


def busy_session(live):
    """The one at work. (One that has answered is busy for a moment more.)"""

    def busy():
        return [each for each in open_sessions(live) if each.note("activity").get("busy")]

    wait_until(lambda: len(busy()) == 1)
    return busy()[0]


def test_events_as_the_contract_says(live, key):
    with fake_model(counting) as model, live.client(key) as client:
        body = {
            "standardized_example": None,
            "raw_example": EXAMPLE,
            "env": wire_env(CounterEnv),
            "llm": {"base_url": model.base_url, "api_key": "sk-model", "model": "m", "api-version": ""},
            "options": {"max_turns": 4, "max_tool_calls": 8, "max_completion_tokens": 77},
        }
        with client.stream("POST", "/v1/rollout/stream", json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = events_of(answer)
    assert [event["event"] for event in events] == ["rollout_started", *["message"] * 5, "reward", "rollout_completed"]
    assert [event["message"]["role"] for event in events[1:6]] == ["system", "user", "assistant", "tool", "assistant"]
    assert events[-2]["rewards"] == {"said": 1.0, "count": 1.0}
    last = events[-1]
    assert (last["success"], last["rewards"], last["error"]) == (True, {"said": 1.0, "count": 1.0}, None)
    assert model.headers[0]["Authorization"] == "Bearer sk-model"
    assert model.bodies[0]["max_tokens"] == 77
    files = [path for path in files_under(live.data.root / "sessions") if path.suffix != ".pkl"]
    assert files
    assert not any(b"sk-model" in content(path) for path in files), "a caller's key is never written down"


def test_the_client_with_paths_reuses_the_open_environment(live, key):
    bundle = bundled(CounterEnv)
    with StorageClient(key, live.url) as storage:
        storage.upload_file("envs/e/env-cls.pkl", bundle["env_cls_bytes"], "application/octet-stream")
        storage.upload_file("envs/e/env-metadata.json", bundle["env_metadata_bytes"], "application/json")
    with fake_model(counting) as model, RolloutClient(key, live.url) as client:
        options = {"llm_base_url": model.base_url, "llm_model": "m"}
        paths = ("envs/e/env-cls.pkl", "envs/e/env-metadata.json")
        first = client.stream_rollout(EXAMPLE, *paths, capture_messages=True, **options)
        began = {each.id for each in open_sessions(live)}
        second = client.stream_rollout(EXAMPLE, *paths, **options)
        assert {each.id for each in open_sessions(live)} == began
        assert first["event"] == second["event"] == "rollout_completed"
        assert first["messages"][-1] == {"role": "assistant", "content": "count 1"}
        with pytest.raises(RolloutNotFound, match="no upload"):
            client.stream_rollout(EXAMPLE, "envs/other.pkl", "envs/e/env-metadata.json", **options)
        result = client.validate_examples([EXAMPLE] * 3, env_class=CounterEnv, verbose=False, **options)
        assert result.ok, result
        assert [each.rewards for each in result.examples] == [{"said": 1.0, "count": 1.0}] * 2


def test_groups_are_scored_together_and_their_failure_is_told(live, key):
    with fake_model("four") as model, RolloutClient(key, live.url) as client:
        options = {"samples": 3, "llm_base_url": model.base_url, "llm_model": "m"}
        events = client.run_group(EXAMPLE, **bundled(GroupEnv), **options)
        assert [event["rewards"] for event in events] == [{"length": 4.0, "rank": float(n)} for n in range(3)]
        events = client.run_group(EXAMPLE, **bundled(BrokenGroupEnv), **options)
        assert [event["success"] for event in events] == [False] * 3
        assert all("no order" in event["group_reward_error"] for event in events)
        result = client.validate_examples([EXAMPLE], env_class=BrokenGroupEnv, verbose=False,
                                          llm_base_url=model.base_url, llm_model="m")  # fmt: skip
        assert not result.ok
        assert "no order" in result.group_reward.error


def test_a_batch_of_an_uploaded_dataset(live, key):
    """The later shape of the call."""
    with StorageClient(key, live.url) as storage:
        rows = "".join(json.dumps({"prompt": f"{n}", "answer": "x"}) + "\n" for n in range(5)).encode()
        storage.upload_file("datasets/d/eval.jsonl", rows, "application/jsonl")
    with fake_model("xx") as model, live.client(key) as client:
        body = {"env": wire_env(GroupEnv), "dataset_path": "datasets/d/eval.jsonl", "max_examples": 2, "group_size": 2,
                "max_in_flight": 4, "split": "eval", "llm": {"base_url": model.base_url, "model": "m"}}  # fmt: skip
        with client.stream("POST", "/v1/rollout/batch/stream", json=body) as answer:
            events = events_of(answer)
    assert events[0]["event"] == "batch_started"
    assert events[0]["total"] == 4
    assert [event["event"] for event in events[1:]] == ["rollout_completed"] * 4 + ["batch_completed"]
    assert len({(event["example_id"], event["sample"]) for event in events[1:5]}) == 4


def test_secrets_of_the_owner_reach_the_environment_and_keys_of_the_machine_do_not(live, key, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-machine")
    with live.client(key) as client:
        assert client.put("/v1/secrets/JUDGE_KEY", json={"value": "judge-secret"}).status_code == 200
    with fake_model("judge-secret, I say") as model, RolloutClient(key, live.url) as client:
        done = client.stream_rollout(EXAMPLE, **bundled(SecretEnv), llm_base_url=model.base_url, llm_model="m",
                                     capture_messages=True)  # fmt: skip
    assert done["rewards"] == {"own": 1.0, "server": 0.0}
    assert done["messages"][-1]["content"] == "[secret], I say"


def test_what_fails_says_why(live, key):
    with fake_model("ok") as model, RolloutClient(key, live.url) as client:
        options = {"llm_base_url": model.base_url, "llm_model": "m"}
        event = client.stream_rollout(EXAMPLE, **bundled(CannotOpen), **options)
        assert event["event"] == "error"
        assert "no key here" in event["error"]
        event = client.stream_rollout({"question": "?"}, **bundled(CounterEnv), **options)
        assert event["event"] == "error"
        assert "prompt" in event["error"]
        event = client.stream_rollout(EXAMPLE, **bundled(DyingEnv), **options)
        assert event["event"] == "worker_error"
        assert "exit code 3" in event["error"]
    with fake_model(lambda body: web.Response(status=401, text="no")) as model, RolloutClient(key, live.url) as client:
        event = client.stream_rollout(EXAMPLE, **bundled(CounterEnv), llm_base_url=model.base_url, llm_model="m")
        assert (event["event"], event["success"]) == ("rollout_completed", False)
        assert "401" in event["error"]
    with live.client(key) as client:
        env = wire_env(CounterEnv)
        for body in (
            {},
            {"env": env},
            {"env": env, "raw_example": EXAMPLE, "standardized_example": EXAMPLE},
            {"env": {"env_cls_bytes": "%%", "env_metadata_bytes": "%%"}, "raw_example": EXAMPLE},
            {"env": env | {"env_cls_path": "a", "env_metadata_path": "b"}, "raw_example": EXAMPLE},
            {"env": env | {"env_metadata_bytes": base64.b64encode(b"{}").decode()}, "raw_example": EXAMPLE},
        ):
            assert client.post("/v1/rollout/stream", json=body).status_code == 400, body


def test_who_hangs_up_ends_the_rollout(live, key):
    asked = threading.Event()

    async def slow(body):
        import asyncio

        asked.set()
        await asyncio.sleep(60)

    with fake_model(slow) as model, live.client(key) as client:
        body = {"raw_example": EXAMPLE, "env": wire_env(CounterEnv), "llm": {"base_url": model.base_url, "model": "m"}}
        with client.stream("POST", "/v1/rollout/stream", json=body) as answer:
            lines = answer.iter_lines()
            assert "rollout_started" in next(lines)
            assert asked.wait(60)
            folder = busy_session(live)
        wait_until(lambda: not folder.note("activity").get("busy"))
        wait_until(lambda: "released 0" in (folder.path / "child.log").read_text())


def test_a_session_whose_process_is_killed_says_so_and_the_next_call_gets_another(live, key):
    entered = threading.Event()

    async def slow(body):
        import asyncio

        entered.set()
        await asyncio.sleep(60)

    found = {}

    def play(url):
        with RolloutClient(key, live.url) as client:
            found["event"] = client.stream_rollout(EXAMPLE, **bundled(CounterEnv), llm_base_url=url, llm_model="m")

    with fake_model(slow) as model:
        thread = threading.Thread(target=play, args=(model.base_url,))
        thread.start()
        assert entered.wait(60)
        folder = busy_session(live)
        os.kill(folder.note("process")["pid"], signal.SIGKILL)
        thread.join(60)
    assert found["event"]["event"] == "worker_error"
    wait_until(lambda: folder.status == "ended")
    assert "SIGKILL" in folder.reason
    with fake_model(counting) as model, RolloutClient(key, live.url) as client:
        event = client.stream_rollout(EXAMPLE, **bundled(CounterEnv), llm_base_url=model.base_url, llm_model="m")
    assert event["success"]


@pytest.mark.slow
def test_a_session_nobody_uses_ends_by_itself(live, key, monkeypatch):
    monkeypatch.setattr(
        "benchmax.platform.server.services.live_sessions.ROLLOUT_IDLE_SECONDS", 4.0
    )  # time enough to be used at all
    with fake_model("a word") as model, RolloutClient(key, live.url) as client:
        options = bundled(GroupEnv, constructor_args={"seed": 1}) | {"llm_base_url": model.base_url, "llm_model": "m"}
        before = {each.id for each in live_sessions.every(live.data)}
        assert client.stream_rollout(EXAMPLE, **options)["success"]
        (folder,) = [each for each in live_sessions.every(live.data) if each.id not in before]
        wait_until(lambda: folder.status == "ended")
        assert "Nobody used it" in folder.reason
        wait_until(lambda: not (folder.path / "socket").exists())
        assert client.stream_rollout(EXAMPLE, **options)["success"], "the next call opens another"


def test_nobody_else_and_no_private_address_from_a_public_server(tmp_path):
    with supervised(tmp_path, allowed_hosts=frozenset({"platform.example"})) as public:
        _, key = public.user()
        with RolloutClient(key, public.url) as client:
            for url in (
                "http://127.0.0.1:1/v1",
                "http://169.254.169.254/v1",
                "http://2130706433/v1",
                "http://[::1]/v1",
            ):
                event = client.stream_rollout(EXAMPLE, **bundled(CounterEnv), llm_base_url=url, llm_model="m")
                assert event["event"] == "error"
                assert "may not be called" in event["error"]
        pids = [each.note("process").get("pid") for each in live_sessions.every(public.data)]
        assert pids
        assert all(map(is_running, pids))
    assert not any(map(is_running, pids)), "the runner that stops ends its sessions"


def test_without_a_runner_it_is_said_soon(tmp_path, monkeypatch):
    from platform_world import LiveServer

    monkeypatch.setattr("benchmax.platform.server.services.live_sessions.NOBODY_SECONDS", 0.3)
    with LiveServer(tmp_path) as alone, RolloutClient(alone.user()[1], alone.url) as client:
        event = client.stream_rollout(EXAMPLE, **bundled(CounterEnv))
        assert "no runner" in event["error"]
        with pytest.raises(RolloutError, match="no runner"):
            client.run_group(EXAMPLE, samples=2, **bundled(CounterEnv))


# Through the SDK


def test_validate_env_plays_on_the_platform(live, key, capsys):
    rows = [EXAMPLE | {"prompt": f"Count to one, {n}."} for n in range(4)]
    with fake_model(counting) as model:
        options = {"local": False, "api_key": key, "base_url": live.url, "llm_base_url": model.base_url}
        report = validate_env(CounterEnv, {}, rows, **options, llm_model="m", full_messages=True)
        assert report.ok, report.remote
        assert len(report.remote["examples"]) == 2
        assert model.bodies[0]["model"] == "m"
        printed = capsys.readouterr().out
        assert "✓ example 0 played on the platform (said 1, count 1)" in printed
        assert "tool: 'count 1'" in printed
        assert printed.splitlines()[-1] == "validate_env passed: remote passed"
        report = validate_env(BrokenGroupEnv, {}, rows, **options, remote_examples=1)
        assert (report.ok, report.remote["examples"][0]["ok"]) == (False, True)
        printed = capsys.readouterr().out
        assert "✗ a group scored on the platform" in printed
        assert "no order" in printed
    wrong = validate_env(CounterEnv, {}, rows, local=False, api_key="sk_wrong", base_url=live.url, verbose=False)
    assert not wrong
    assert "401" in wrong.remote["error"]


def test_without_an_endpoint_a_model_of_the_machine_plays(live, key, tmp_path, monkeypatch):
    from benchmax.inference.weights.store import Card

    home = tmp_path / "models" / "toy"
    make_tiny(home, hidden=32, layers=1)
    card = Card("toy", "Toy", "made here", "none", "0" * 64, 1, 1)
    (home / "benchmax.json").write_text(json.dumps(asdict(card)))
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    with live.client(key) as client:
        env = wire_env(GroupEnv, constructor_args={"seed": 2})  # its session begins here, and knows this store
        body = {"raw_example": EXAMPLE, "env": env, "options": {"max_completion_tokens": 5}}
        with client.stream("POST", "/v1/rollout/stream", json=body, timeout=150) as answer:
            events = events_of(answer)
    assert events[0]["model"] == "toy"
    assert (events[-1]["event"], events[-1]["success"]) == ("rollout_completed", True), events
    bundle = bundled(GroupEnv, constructor_args={"seed": 2})
    with RolloutClient(key, live.url) as client:
        assert client.stream_rollout(EXAMPLE, **bundle, max_completion_tokens=5)["success"]
        with pytest.raises(RolloutNotFound, match=r"no model 'toi' here\. Did you mean 'toy'"):
            client.stream_rollout(EXAMPLE, **bundle, llm_model="toi")
        with pytest.raises(RolloutNotFound, match="no model 'toi'"):
            client.run_group(EXAMPLE, samples=2, **bundle, llm_model="toi")
