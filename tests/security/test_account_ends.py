"""Changing a password, signing out everywhere, and what a removed user leaves: nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from benchmax.models.address_rules import AddressRules
from benchmax.platform.store.accounts import logins, users
from benchmax.platform.store.tables import BlobPath, Chunk, Corpus, Endpoint, Secret, Upload, Webhook
from benchmax.platform.store.uploads import corpora
from platform_world import LiveServer

OLD, NEW = "the old password", "the new password"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("account")) as server:
        yield server


def browser(world, user_id):
    with world.database.write() as session:
        token = logins.open_login(session, user_id)
    return world.client(cookies={"benchmax_session": token}, trust_env=False)


@pytest.mark.timeout(200)
def test_a_changed_password_ends_every_other_session(world):
    user_id, key = world.user("change@example.org")
    world.set_password(user_id, OLD)
    own = {"Origin": world.url}
    with browser(world, user_id) as mine, browser(world, user_id) as other, world.client(key) as program:
        body = {"currentPassword": "wrong", "newPassword": NEW}
        assert mine.post("/v1/password", json=body, headers=own).status_code == 401
        body = {"currentPassword": OLD, "newPassword": "short"}
        assert mine.post("/v1/password", json=body, headers=own).status_code == 400
        assert other.get("/v1/whoami").status_code == 200
        body = {"currentPassword": OLD, "newPassword": NEW}
        assert mine.post("/v1/password", json=body, headers=own).status_code == 200
        assert mine.get("/v1/whoami").status_code == 200
        assert other.get("/v1/whoami").status_code == 401
        assert program.get("/v1/whoami").status_code == 200
    with world.client() as client:
        for password, status in ((OLD, 401), (NEW, 200)):
            form = {"email": "change@example.org", "password": password}
            assert client.post("/login", json=form, headers=own).status_code == status


def test_a_key_does_not_give_its_owner_a_first_password(world):
    user_id, key = world.user("first@example.org")
    with world.client(key) as program:
        assert program.post("/v1/password", json={"newPassword": NEW}).status_code == 403
    with browser(world, user_id) as mine:
        assert mine.post("/v1/password", json={"newPassword": NEW}, headers={"Origin": world.url}).status_code == 200


def test_signing_out_everywhere(world):
    user_id, key = world.user("out@example.org")
    _, other = world.user("out@example.org")
    with browser(world, user_id) as one, browser(world, user_id) as two, world.client(key) as program:
        with world.database.write() as session:
            link = logins.create_link(session, user_id)
        assert one.post("/v1/sign-out", json={}, headers={"Origin": world.url}).status_code == 200
        assert one.get("/v1/whoami").status_code == two.get("/v1/whoami").status_code == 401
        with world.client() as stranger:
            assert stranger.post("/login", json={"token": link}).status_code == 401
        assert program.post("/v1/sign-out", json={"keys": True}).status_code == 200
        assert program.get("/v1/whoami").status_code == 200
    with world.client(other) as revoked:
        assert revoked.get("/v1/whoami").status_code == 401


def test_a_removed_user_leaves_nothing(world):
    _, boss = world.user("boss@example.org", role="admin")
    user_id, key = world.user("leaver@example.org")
    tables = (Upload, BlobPath, Corpus, Endpoint, Webhook, Secret)
    with world.client(key) as client:
        rows = b"\n".join(b'{"prompt": "%d", "ground_truth": "a"}' % n for n in range(40))
        assert client.post("/v1/datasets", params={"name": "d.jsonl"}, content=rows).status_code == 201
        client.get("/v1/storage/upload-url", params={"path": "datasets/x.jsonl", "mimeType": "x/y"})
        corpus = client.post("/v1/corpora", json={"name": "c"}).json()["id"]
        client.post(f"/v1/corpora/{corpus}/chunks", json={"chunks": [{"content": "theirs"}]})
        body = {"name": "e", "baseUrl": "https://example.org/v1", "model": "m", "apiKey": "k" * 20}
        assert client.post("/v1/endpoints", json=body).status_code == 201
        assert client.post("/v1/webhooks", json={"url": "https://hooks.example/x"}).status_code == 201
        client.put("/v1/secrets/S", json={"value": "secret"})

    def left():
        with world.database.read() as session:
            return [
                session.scalar(select(func.count()).select_from(table).where(table.owner_id == user_id))
                for table in tables
            ] + [session.scalar(select(func.count()).where(Chunk.corpus_id == corpus))]

    assert all(left())
    with world.client(boss) as client:
        assert client.delete(f"/v1/users/{user_id}").status_code == 200
    assert not any(left())


def test_scores_tell_nothing_of_other_corpora(store):
    with store.write() as session:
        for name in ("mine", "theirs"):
            user = users.ensure_user(session, f"{name}@example.org")
            session.add(Corpus(id=name, owner_id=user.id, name=name))
        session.flush()
        texts = ["the merger of acme", "a cat sat on the mat", "acme acme acme", "the dog"]
        corpora.add(session, "mine", [{"id": str(at), "content": text} for at, text in enumerate(texts)])

    def scores():
        with store.read() as session:
            return [
                (chunk.id, score)
                for chunk, score in corpora.search(session, "mine", "acme merger", limit=10, offset=0)[0]
            ]

    before = scores()
    assert {each for each, _ in before} == {"0", "2"}
    with store.write() as session:
        theirs = [{"id": str(at), "content": f"merger number {at}"} for at in range(50)]
        corpora.add(session, "theirs", theirs)
    assert scores() == before


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
        "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe", "::ffff:100.100.100.200", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1",
    ],
)  # fmt: skip
def test_no_metadata_service_is_called_even_where_private_networks_are(address):
    import ipaddress

    assert not AddressRules(private=True).allows(ipaddress.ip_address(address))
    assert AddressRules(private=True).allows(ipaddress.ip_address("10.0.0.1"))
