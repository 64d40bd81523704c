"""Chats with checkpoints: streamed, with tools run live, beside training, and gone when nobody uses them."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.platform.store.queue import live_sessions
from benchmax.platform.store.runs import runs
from benchmax.trainer.tiny_model import make_tiny
from platform_world import LiveServer
from runner_world import is_running, wait_until
from session_world import events_of, store_run, supervised

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

ROWS = [{"prompt": f"Count to {n}.", "answer": str(n)} for n in range(16)]
ARGS = {"learning_rate": 1e-2, "tune": "full", "group_size": 2, "max_new_tokens": 4, "max_turns": 1, "eval_every": 100}


class PlainEnv(BaseEnv):
    """No tools: their description alone would not fit a toy model."""

    system_prompt = "Count."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(str(task["answer"]) in messages[-1]["content"])}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with supervised(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture(scope="module")
def me(live):
    return live.user()


@pytest.fixture(scope="module")
def idle(live, me, model):
    """A run that never began: its base model can be spoken with all the same."""
    return store_run(live, me[0], PlainEnv, ROWS, model=str(model))


@pytest.fixture
def training(live, me, model):
    """A run that trains for as long as the test takes, with its first checkpoint saved."""
    run_id = store_run(
        live, me[0], PlainEnv, ROWS, queued=True, model=str(model), max_steps=100_000, num_epochs=100_000,
        save_every=1, **ARGS,
    )  # fmt: skip
    wait_until(lambda: (live.data.run(run_id) / "checkpoints" / "latest").exists(), 120)
    yield run_id
    with live.database.write() as session:
        runs.request_cancel(session, run_id)
    wait_until(lambda: not live.boss.watched)


def opened(client, run_id, **more):
    answer = client.post("/v1/playground/sessions", json={"runId": run_id, **more})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "starting"
    return answer.json()["id"]


def say(client, session, content="Hello", **more):
    body = {"content": content, "maxTokens": 12, "seed": 1, **more}
    with client.stream("POST", f"/v1/playground/sessions/{session}/messages", json=body, timeout=150) as answer:
        assert answer.status_code == 200, answer.read()
        return events_of(answer)


def kinds(events):
    return [event["event"] for event in events if event["event"] != "token"]


def step(live, run_id):
    with live.database.read() as session:
        return runs.get(session, run_id).latest_step or 0


@pytest.mark.slow
def test_two_checkpoints_side_by_side_while_the_run_trains(live, me, training):
    with live.client(me[1]) as client:
        first, second = (opened(client, training, checkpoint=name) for name in ("base", "latest"))
        before = step(live, training)
        answers = {}

        def talk(session):
            with live.client(me[1]) as own:
                answers[session] = [say(own, session), say(own, session, "And again?")]

        threads = [threading.Thread(target=talk, args=(each,)) for each in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)
        for events, more in answers.values():
            assert kinds(events) == ["message", "done"], events
            text = "".join(event["text"] for event in events if event["event"] == "token")
            assert text
            assert text == events[-2]["message"]["content"]
            assert 0 < events[-1]["tokens"] <= 12
            assert more[-1]["promptTokens"] > events[-1]["promptTokens"], "the second turn knows the first"
        info = client.get(f"/v1/playground/sessions/{first}").json()
        assert (info["status"], info["systemPrompt"], info["checkpoint"]) == ("ready", "Count.", "base")
        assert say(client, first, "Hello") != answers[second][0]
        wait_until(lambda: step(live, training) > before + 2)
        assert not (live.data.root / "sessions" / second / "model").exists(), "the weights are in memory"
        folders = [each for each in live_sessions.every(live.data) if each.id in (first, second)]
        pids = [each.note("process")["pid"] for each in folders]
        assert all(os.getpriority(os.PRIO_PROCESS, pid) > 0 for pid in pids), "training goes first"
        for session in (first, second):
            assert client.delete(f"/v1/playground/sessions/{session}").json()["success"]
            assert client.get(f"/v1/playground/sessions/{session}").json()["status"] == "ended"
        wait_until(lambda: not any(map(is_running, pids)))
        assert say(client, first) == [{"event": "error", "message": "You ended it."}]


def test_a_chosen_example_is_played_and_scored_and_only_its_owner_can(live, me, idle):
    from benchmax.envs.example_id import make_example

    wanted = make_example([{"role": "user", "content": "Count to 3."}], task=ROWS[3])["id"]
    with live.client(me[1]) as client:
        session = opened(client, idle, checkpoint="base", exampleId=wanted)
        events = say(client, session, "")
        assert kinds(events) == ["message", "reward", "done"]
        assert (
            "".join(event["text"] for event in events if event["event"] == "token") == events[-3]["message"]["content"]
        )
        assert 0 < events[-1]["tokens"] <= 12
        again = say(client, session, "And again?")
        assert again[-1]["promptTokens"] > events[-1]["promptTokens"], "the second turn knows the first"
        assert events[-2]["rewards"] == {"said": float("3" in events[-3]["message"]["content"])}
        info = client.get(f"/v1/playground/sessions/{session}").json()
        assert info["promptMessages"] == [{"role": "user", "content": "Count to 3."}]
        other = opened(client, idle, checkpoint="base", exampleId="nothing")
        (event,) = say(client, other, "")
        assert "no example" in event["message"]
        only_its_owner_may(live, me, idle, session)


def only_its_owner_may(live, me, idle, session):
    """Open one, look at it, speak with it, end it; it ends with its run."""
    _, stranger = live.user("other@example.org")
    _, reader = live.user("reader@example.org", scopes=("read",))
    with live.client(me[1]) as client, live.client(stranger) as other, live.client(reader) as third:
        path = "/v1/playground/sessions"
        assert other.post(path, json={"runId": idle}).status_code == 404
        assert third.post(path, json={"runId": idle}).status_code == 403
        assert client.post(path, json={"runId": idle, "checkpoint": "../x"}).status_code == 400
        assert client.post(path, json={"runId": idle, "checkpoint": "step-99999999"}).status_code == 400
        assert client.post(path, json={"runId": idle, "environment": False, "exampleId": "x"}).status_code == 400
        assert other.get(f"{path}/{session}").status_code == 404
        assert other.post(f"{path}/{session}/messages", json={"content": "x"}).status_code == 404
        assert other.delete(f"{path}/{session}").status_code == 404
        assert client.get(f"{path}/ses_..").status_code == 404
        assert kinds(say(client, session)) == ["message", "reward", "done"]
        folder = live_sessions.find(live.data, session, me[0])
        assert os.getpriority(os.PRIO_PROCESS, folder.note("process")["pid"]) > 0, "training goes first"
        assert (folder.path / "socket").stat().st_mode & 0o077 == 0
        assert asyncio.run(at_socket(folder, "")) == asyncio.run(at_socket(folder, "x" * 43)) == b""
        assert b"done" in asyncio.run(at_socket(folder, folder.note("ready")["token"]))
        assert client.delete(f"/v1/train/runs/{idle}").status_code == 200
        wait_until(lambda: client.get(f"{path}/{session}").json()["status"] == "ended")
        assert "deleted" in client.get(f"{path}/{session}").json()["statusReason"]


async def at_socket(folder, token):
    """What one hears there with this word."""
    with folder.socket_path() as path:
        reader, writer = await asyncio.open_unix_connection(path)
    writer.write(json.dumps({"do": "say", "content": "hi", "max_tokens": 2, "token": token}).encode() + b"\n")
    heard = await reader.read()
    writer.close()
    await writer.wait_closed()
    return heard


@pytest.mark.slow
def test_a_chat_outlives_its_runner_and_not_its_platform(tmp_path, model):
    """kill -9 of the runner: the next one adopts the chat. Without a next one, nothing is left after ten seconds."""
    with LiveServer(tmp_path) as server:
        owner, key = server.user()
        run_id = store_run(server, owner, PlainEnv, ROWS, model=str(model))
        command = [sys.executable, "-m", "benchmax.platform.runner", "--data", str(server.data.root)]
        runners = [subprocess.Popen(command)]
        try:
            with server.client(key) as client:
                session = opened(client, run_id, checkpoint="base")
                assert kinds(say(client, session)) == ["message", "done"]
                folder = live_sessions.find(server.data, session, owner)
                wait_until(lambda: len(folder.note("process").get("family") or ()) >= 2)
                family = [int(each[0]) for each in folder.note("process")["family"]]
                runners[0].kill()
                runners[0].wait()
                runners.append(subprocess.Popen(command))
                time.sleep(12)  # longer than a child waits for another runner
                assert kinds(say(client, session, "Still there?")) == ["message", "done"]
        finally:
            for runner in runners:
                runner.kill()
                runner.wait()
        wait_until(lambda: not any(map(is_running, family)))
