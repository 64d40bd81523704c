"""Webhooks: what happens to a run reaches the address its owner gave, signed, a few times if need be, and no other."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmax import limits
from benchmax.platform.runner.ingest import Ingest, reindex
from benchmax.platform.store.accounts import webhooks
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import Delivery, Webhook
from benchmax.platform.wire.values import WEBHOOK_EVENTS
from platform_world import LiveServer, make_run
from runner_world import wait_until


class Receiver:
    """A server that keeps what it is sent and answers as it is told: 200 when nothing else was said."""

    def __init__(self):
        self.got, self.answers = [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module", autouse=True)
def soon():
    """What is queued is looked for at once, nearly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmax.platform.server.services.webhooks.LOOK_SECONDS", 0.05)
        yield


@pytest.fixture
def quick(monkeypatch):
    """Attempts follow each other at once."""
    monkeypatch.setattr(webhooks, "PAUSES", (0.0,) * len(webhooks.PAUSES))


def add(client, url, **more):
    made = client.post("/v1/webhooks", json={"url": url, **more})
    assert made.status_code == 201, made.text
    return made.json()


def a_run(live, email, **values):
    with live.database.write() as session:
        return make_run(session, email, **values).id


def end(live, run_id, status="complete", reason="All steps are done."):
    with live.database.write() as session:
        runs.set_status(session, run_id, status, reason)


def deliveries(client, webhook):
    return client.get(f"/v1/webhooks/{webhook['id']}/deliveries").json()["deliveries"]


def settled(client, webhook, count=1):
    wait_until(lambda: sum(each["status"] != "queued" for each in deliveries(client, webhook)) >= count)
    return deliveries(client, webhook)


def signature(secret, headers, body):
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def test_the_end_of_a_run_is_told_signed_and_noted(live, receiver):
    _, key = live.user("ends@example.org")
    with live.client(key) as client:
        hook = add(client, receiver.url)
        run_id = a_run(live, "ends@example.org", name="sums")
        end(live, run_id, "failed", "Out of memory.")
        [told] = settled(client, hook)
        [(path, headers, body)] = receiver.got
        assert path == "/hook"
        assert headers["webhook-signature"] == signature(hook["secret"], headers, body)
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
        sent = json.loads(body)
        assert (sent["type"], sent["text"]) == ("run.ended", "sums failed. Out of memory.")
        assert sent["data"] | {"runId": run_id, "status": "failed", "reason": "Out of memory."} == sent["data"]
        assert sent["data"]["url"] == f"{live.url}/experiments/{run_id}"
        assert (told["id"], told["status"], told["answer"]) == (headers["webhook-id"], "delivered", 200)
        [listed] = client.get("/v1/webhooks").json()["webhooks"]
        assert listed["last"]["id"] == told["id"]
        assert "secret" not in listed
        assert receiver.url not in json.dumps(client.get("/v1/audit").json()), "an address can be a key"


def test_only_the_owner_is_told_and_only_of_what_was_asked_for(live, receiver):
    _, key = live.user("alerts@example.org")
    with live.client(key) as client:
        hook = add(client, receiver.url, events=["run.alert"])
        end(live, a_run(live, "alerts@example.org"))
        end(live, a_run(live, "somebody@example.org"))
        assert deliveries(client, hook) == []
        refused = client.post("/v1/webhooks", json={"url": receiver.url, "events": ["run.deleted"]})
        assert refused.status_code == 400


def write_events(folder, *events):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))


def test_an_alert_is_told_once_however_often_it_is_read(live, receiver):
    _, key = live.user("once@example.org")
    alert = {"time": time.time(), "kind": "alert", "alert": "repetition", "step": 4, "message": "Answers repeat.",
             "rollouts": ["r1"]}  # fmt: skip
    with live.client(key) as client:
        hook = add(client, receiver.url)
        run_id = a_run(live, "once@example.org", name="looping")
        folder = live.data.run(run_id)
        write_events(folder, alert, alert | {"kind": "checkpoint"})
        assert Ingest(live.database, run_id, folder).step(60)
        settled(client, hook)
        reindex(live.database, live.data, run_id)
        write_events(folder, *[alert | {"time": 1.0, "step": step} for step in range(5, 8)])
        reindex(live.database, live.data, run_id)
        [told] = deliveries(client, hook)
        assert told["event"] == "run.alert"
        sent = json.loads(receiver.got[0][2])
        assert sent["text"] == "looping, step 5: Answers repeat."
        assert sent["data"]["alert"] == "repetition"
        assert sent["data"]["rollouts"] == ["r1"]


def test_a_deleted_run_has_no_end(live, receiver):
    _, key = live.user("deleted@example.org")
    with live.client(key) as client:
        hook = add(client, receiver.url)
        run_id = a_run(live, "deleted@example.org")
        client.delete(f"/v1/train/runs/{run_id}")
        end(live, run_id, "cancelled")
        assert deliveries(client, hook) == []


@pytest.mark.usefixtures("quick")
def test_what_passes_is_tried_again_and_what_does_not_is_given_up(live, receiver):
    _, key = live.user("again@example.org")
    with live.client(key) as client:
        hook = add(client, receiver.url)
        receiver.answers = [503, 429]
        client.post(f"/v1/webhooks/{hook['id']}/test")
        [told] = settled(client, hook)
        assert (told["status"], told["attempts"], told["answer"]) == ("delivered", 3, 200)
        assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == 1, "the receiver can tell it again"
        receiver.answers = [410]
        client.post(f"/v1/webhooks/{hook['id']}/test")
        gone = settled(client, hook, 2)[0]
        assert (gone["status"], gone["attempts"], gone["problem"]) == ("failed", 1, "It answered 410.")
        receiver.answers = [307]
        client.post(f"/v1/webhooks/{hook['id']}/test")
        moved = settled(client, hook, 3)[0]
        assert (moved["status"], moved["attempts"]) == ("failed", 1)
        assert "not followed" in moved["problem"]
        assert {path for path, _, _ in receiver.got} == {"/hook"}


@pytest.mark.usefixtures("quick")
def test_the_budget_of_attempts_ends(live, receiver):
    _, key = live.user("budget@example.org")
    receiver.answers = [500] * 20
    with live.client(key) as client:
        hook = add(client, receiver.url)
        client.post(f"/v1/webhooks/{hook['id']}/test")
        [told] = settled(client, hook)
    assert (told["status"], told["attempts"], len(receiver.got)) == ("failed", 6, 6)


def test_between_attempts_there_is_a_pause(live, monkeypatch):
    monkeypatch.setattr(webhooks, "PAUSES", (1000.0,))  # longer than any machine takes for this test
    _, key = live.user("pause@example.org")
    with live.client(key) as client:
        hook = add(client, "http://127.0.0.1:1/nobody")
        client.post(f"/v1/webhooks/{hook['id']}/test")
        wait_until(lambda: deliveries(client, hook)[0]["problem"])
        [told] = deliveries(client, hook)
        assert (told["status"], told["attempts"], told["answer"]) == ("queued", 1, None)
        assert told["problem"] == "It cannot be reached: Connection refused."
        with live.database.read() as session:
            left = session.get(Delivery, int(told["id"].removeprefix("msg_"))).available - time.time()
        assert 500 < left <= 1000
        assert client.delete(f"/v1/webhooks/{hook['id']}").status_code == 200
        assert deliveries_of(live, hook["id"]) == []


def deliveries_of(live, webhook_id):
    with live.database.read() as session:
        return webhooks.deliveries(session, webhook_id)


def test_one_that_was_begun_by_a_sender_that_died_is_begun_again(live, receiver):
    _, key = live.user("died@example.org")
    with live.client(key) as client:
        hook = add(client, receiver.url)
        with live.database.write() as session:
            row = webhooks.queue_test(session, session.get(Webhook, hook["id"]))
            seen = Delivery(id=row.id, attempts=row.attempts)  # as two senders read it
            assert webhooks.claim(session, seen)
            assert not webhooks.claim(session, seen), "two senders do not make the same attempt"
            row.available = time.time() - 1
        [told] = settled(client, hook)
        assert (told["status"], told["attempts"]) == ("delivered", 2)


def test_addresses_inside_are_refused_when_given_and_when_dialled(tmp_path, receiver):
    with LiveServer(tmp_path, allowed_hosts=frozenset({"platform.example"})) as public:
        _, key = public.user()
        with public.client(key) as client:
            for url in ("http://169.254.169.254/latest", receiver.url, "http://10.0.0.7/x", "http://[::1]/x"):
                assert client.post("/v1/webhooks", json={"url": url}).status_code == 400, url
            hook = add(client, f"http://localhost:{receiver.port}/hook")
            client.post(f"/v1/webhooks/{hook['id']}/test")
            wait_until(lambda: deliveries(client, hook)[0]["problem"])
            assert "may not be called from here" in deliveries(client, hook)[0]["problem"]
    assert receiver.got == []


def test_the_platform_tells_neither_itself_nor_its_keys(live):
    user_id, key = live.user("self@example.org")
    with live.client(key) as client:
        assert "own address" in client.post("/v1/webhooks", json={"url": f"{live.url}/x"}).json()["error"]
        refused = client.post("/v1/webhooks", json={"url": f"https://hooks.example/{key}"})
        assert "this platform's own" in refused.json()["error"]
        with live.database.write() as session:
            for _ in range(limits.WEBHOOKS):
                webhooks.create(session, Vault(live.data), user_id, "https://hooks.example/x", WEBHOOK_EVENTS)
        assert (
            "Remove one first" in client.post("/v1/webhooks", json={"url": "https://hooks.example/x"}).json()["error"]
        )


def test_anothers_webhook_is_not_to_be_seen(live, receiver):
    _, key = live.user("mine@example.org")
    _, other = live.user("other@example.org")
    with live.client(key) as client, live.client(other) as stranger:
        hook = add(client, receiver.url)
        path = f"/v1/webhooks/{hook['id']}"
        assert stranger.get("/v1/webhooks").json() == {"webhooks": []}
        for answer in (stranger.delete(path), stranger.get(f"{path}/deliveries"), stranger.post(f"{path}/test")):
            assert answer.status_code == 404
    _, reader = live.user("mine@example.org", scopes=("read", "write"))
    with live.client(reader) as client:
        assert client.get("/v1/webhooks").status_code == 403


def test_the_log_of_deliveries_is_bounded(live, monkeypatch):
    monkeypatch.setattr(webhooks, "DELIVERIES_KEPT", 5)
    _, key = live.user("kept@example.org")
    with live.client(key) as client:
        hook = add(client, "https://hooks.example/x")
    with live.database.write() as session:
        row = session.get(Webhook, hook["id"])
        for _ in range(20):
            delivery = webhooks.queue_test(session, row)
            delivery.state = "delivered"
    assert len(deliveries_of(live, hook["id"])) <= 6
