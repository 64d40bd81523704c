"""No credential begets one that is stronger or lives longer, and what it opened closes with it (S2, S3, S10)."""

from __future__ import annotations

import threading
import time

import pytest

from benchmax.platform.server.security import stream_watch
from benchmax.platform.store.accounts import api_keys, logins, tokens
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import ApiKey, BlobPath, DeviceCode, Upload
from benchmax.platform.wire.values import SCOPES
from platform_world import LiveServer, make_run
from runner_world import wait_until

GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("credentials")) as server:
        server.settings.limits_per_hour["key"] = 1000
        yield server


def device(world, approver):
    """The answer to a device that the bearer of a key let in."""
    with world.client() as stranger, world.client(approver) as client:
        asked = stranger.post("/api/auth/device/code", json={}).json()
        approved = client.post("/api/auth/device/approve", json={"userCode": asked["user_code"]})
        assert approved.status_code == 200
        return stranger.post(
            "/api/auth/device/token", json={"grant_type": GRANT, "device_code": asked["device_code"]}
        ), asked


def key_id(world, key):
    with world.database.read() as session:
        return api_keys.find_key(session, key)[0].id


@pytest.mark.parametrize("scopes", [("admin",), ("admin", "read")])
def test_a_device_can_do_what_the_key_that_approved_it_can(world, scopes):
    _, key = world.user(f"{'-'.join(scopes)}@example.org", scopes=scopes, days=2)
    answer, _ = device(world, key)
    token = answer.json()["access_token"]
    assert answer.json()["expires_in"] <= 2 * 86_400
    with world.database.read() as session:
        made, _ = api_keys.find_key(session, token)
        parent, _ = api_keys.find_key(session, key)
        assert made.scopes == sorted(scopes)
        assert made.expires <= parent.expires
    with world.client(token) as client:
        assert client.get("/v1/keys").status_code == 200
        assert client.post("/v1/corpora", json={"name": "c"}).status_code == 403


def test_a_person_who_signed_in_gives_a_device_everything(world):
    user_id, _ = world.user("person@example.org")
    with world.database.write() as session:
        cookie = logins.open_login(session, user_id)
    with world.client() as stranger, world.client(cookies={"benchmax_session": cookie}) as browser:
        asked = stranger.post("/api/auth/device/code", json={}).json()
        own = {"Origin": world.url}
        body = {"userCode": asked["user_code"]}
        assert browser.post("/api/auth/device/approve", json=body, headers=own).status_code == 200
        body = {"grant_type": GRANT, "device_code": asked["device_code"]}
        token = stranger.post("/api/auth/device/token", json=body).json()["access_token"]
    with world.client(token) as client:
        assert client.get("/v1/whoami").json()["scopes"] == sorted(SCOPES)


def test_what_a_key_made_ends_with_it_down_to_the_last(world):
    _, first = world.user("tree@example.org")
    with world.client(first) as client:
        second = client.post("/v1/keys", json={"scopes": ["read", "write", "admin"]}).json()["key"]
    third = device(world, second)[0].json()["access_token"]
    with world.client(third) as client:
        fourth = client.post("/v1/keys", json={"scopes": ["read"]}).json()["key"]
    _, other = world.user("tree@example.org")
    with world.client(other) as client:
        assert client.delete(f"/v1/keys/{key_id(world, second)}").status_code == 200
    for key, status in ((first, 200), (second, 401), (third, 401), (fourth, 401), (other, 200)):
        with world.client(key) as client:
            assert client.get("/v1/whoami").status_code == status


def test_a_key_made_by_a_key_expires_no_later(world):
    _, key = world.user("days@example.org", days=1)
    with world.client(key) as client:
        for body in ({}, {"days": 300}):
            made = client.post("/v1/keys", json=body).json()
            with world.database.read() as session:
                assert session.get(ApiKey, made["id"]).expires <= time.time() + 86_400


def test_a_device_approved_by_a_key_that_was_revoked_meanwhile_gets_nothing(world):
    _, key = world.user("meanwhile@example.org")
    with world.client() as stranger, world.client(key) as client:
        asked = stranger.post("/api/auth/device/code", json={}).json()
        client.post("/api/auth/device/approve", json={"userCode": asked["user_code"]})
        client.delete(f"/v1/keys/{key_id(world, key)}")
        body = {"grant_type": GRANT, "device_code": asked["device_code"]}
        assert stranger.post("/api/auth/device/token", json=body).json() == {"error": "access_denied"}
    with world.database.read() as session:
        assert session.get(DeviceCode, tokens.digest(asked["device_code"])) is None


def test_an_upload_address_ends_with_the_key_that_asked_for_it(world):
    _, key = world.user("upload@example.org")
    with world.client(key) as client:
        asked = client.get("/v1/storage/upload-url", params={"path": "datasets/a.jsonl", "mimeType": "x/y"}).json()
        client.delete(f"/v1/keys/{key_id(world, key)}")
    with world.client() as stranger:
        assert stranger.put(asked["uploadUrl"], content=b"{}").status_code == 403


def test_a_part_of_an_administrator_makes_no_user(world):
    _, key = world.user("boss@example.org", role="admin", scopes=("admin",))
    body = {"name": "new@example.org", "password": "a long password", "role": "admin"}
    with world.client(key) as client:
        answer = client.post("/v1/users", json=body)
        assert answer.status_code == 403
        assert "read, write" in answer.json()["error"]


class Reader(threading.Thread):
    """Reads a live stream until it ends."""

    def __init__(self, world, run_id, key=None):
        super().__init__(daemon=True)
        self._world, self._path, self._key = world, f"/v1/train/runs/{run_id}/stream", key
        self.began = threading.Event()
        self.start()
        assert self.began.wait(60)

    def run(self):
        with self._world.client(self._key) as client, client.stream("GET", self._path) as answer:
            assert answer.status_code == 200
            self.began.set()
            for _ in answer.iter_bytes():
                pass

    def ends(self, seconds):
        self.join(seconds)
        return not self.is_alive()


def test_streams_end_with_the_key_and_with_the_publication(world, monkeypatch):
    monkeypatch.setattr(stream_watch, "RECHECK_SECONDS", 0.2)
    _, key = world.user("stream@example.org")
    _, staying = world.user("stream@example.org")
    with world.database.write() as session:
        run = make_run(session, "stream@example.org")
        run_id, run.is_public = run.id, True
    revoked, kept, stranger = Reader(world, run_id, key), Reader(world, run_id, staying), Reader(world, run_id)
    with world.client(staying) as client:
        client.delete(f"/v1/keys/{key_id(world, key)}")
        assert revoked.ends(60)
        assert stranger.is_alive()
        assert client.patch(f"/v1/train/runs/{run_id}", json={"isPublic": False}).status_code == 200
        assert stranger.ends(60)
        assert kept.is_alive()
    with world.database.write() as session:
        runs.get(session, run_id).status = "complete"
    assert kept.ends(60)


@pytest.mark.parametrize(("days", "role"), [(1, "member"), (1, "admin"), (None, "admin")])
def test_a_key_makes_no_user_who_outlives_it(world, days, role):
    _, key = world.user("boss@example.org", role="admin", days=days)
    name = f"{role}-{days}@example.org"
    with world.client(key) as client:
        answer = client.post("/v1/users", json={"name": name, "password": "a long password", "role": role})
        assert answer.status_code == 403
        client.delete(f"/v1/keys/{key_id(world, key)}")
    with world.client() as stranger:
        assert stranger.post("/login", json={"email": name, "password": "a long password"}).status_code == 401


def test_an_administrator_who_signed_in_makes_another(world):
    user_id, _ = world.user("boss@example.org", role="admin")
    with world.database.write() as session:
        cookie = logins.open_login(session, user_id)
    body = {"name": "second@example.org", "password": "a long password", "role": "admin"}
    with world.client(cookies={"benchmax_session": cookie}) as browser:
        assert browser.post("/v1/users", json=body, headers={"Origin": world.url}).status_code == 201


@pytest.mark.parametrize("end", ["the key", "the user"])
def test_an_upload_that_is_under_way_ends_with_its_key(world, end):
    user_id, key = world.user(f"under-way-{end[4:]}@example.org")
    _, boss = world.user("boss@example.org", role="admin")
    with world.client(key) as client:
        asked = client.get("/v1/storage/upload-url", params={"path": "datasets/a.jsonl", "mimeType": "x/y"}).json()

    def is_under_way():
        with world.database.read() as session:
            return session.query(Upload).filter_by(owner_id=user_id).one().used

    def pieces():
        yield b"{}"
        wait_until(is_under_way)
        with world.client(boss if end == "the user" else key) as client:
            address = f"/v1/users/{user_id}" if end == "the user" else f"/v1/keys/{key_id(world, key)}"
            assert client.delete(address).status_code == 200
        yield b"{}"

    with world.client() as stranger:
        assert stranger.put(asked["uploadUrl"], content=pieces()).status_code == 403
    with world.database.read() as session:
        assert session.query(BlobPath).filter_by(owner_id=user_id).all() == []
