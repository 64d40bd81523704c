"""Users over the wire: an administrator makes and removes them, and who is removed has no way in."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic import command

from benchmax.platform.store import database, schema_version
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import Audit
from platform_world import make_run

NEW = {"name": "new@example.org", "password": "a long password", "role": "member"}


@pytest.fixture
def admin(live):
    with live.client(live.user("boss@example.org", role="admin")[1]) as client:
        yield client


@pytest.fixture
def member(live):
    with live.client(live.user("member@example.org")[1]) as client:
        yield client


def names(client):
    return {each["name"]: each for each in client.get("/v1/users").json()["users"]}


def test_a_user_comes_and_goes(admin, member, live):
    made = admin.post("/v1/users", json=NEW)
    assert made.status_code == 201, made.text
    assert made.json() | {"id": "", "createdAt": ""} == {
        "id": "", "name": "new@example.org", "role": "member", "hasPassword": True, "createdAt": "", "runs": 0,
    }  # fmt: skip
    assert "a long password" not in made.text
    with live.client() as nobody:
        signed_in = nobody.post("/login", json={"email": NEW["name"], "password": NEW["password"]})
    assert signed_in.status_code == 200, signed_in.text
    _, key = live.user("new@example.org")
    with live.database.write() as session:
        run = make_run(session, "new@example.org")
        jobs.enqueue(session, run.id)
    assert names(admin)["new@example.org"]["runs"] == 1
    assert admin.delete(f"/v1/users/{made.json()['id']}").status_code == 200
    assert "new@example.org" not in names(admin)
    with live.client(key) as gone:
        assert gone.get("/v1/whoami").status_code == 401
        assert gone.post("/login", json={"email": NEW["name"], "password": NEW["password"]}).status_code == 401
    with live.database.read() as session:
        assert runs.get(session, run.id) is None
        assert all(job.state == "done" for job in jobs.of_run(session, run.id))
        deeds = [row.action for row in session.query(Audit)]
    assert {"user.create", "user.delete"} <= set(deeds)
    assert admin.post("/v1/users", json=NEW).status_code == 201, "the address is free again"
    assert admin.post("/v1/users", json=NEW).status_code == 400


def test_a_member_sees_only_themselves(admin, member):
    assert list(names(member)) == ["member@example.org"]
    boss = names(admin)["boss@example.org"]["id"]
    assert member.post("/v1/users", json=NEW | {"name": "x@example.org"}).status_code == 404
    assert member.delete(f"/v1/users/{boss}").status_code == 404
    assert "boss@example.org" in names(admin)


@pytest.mark.parametrize("change", [{"password": "short"}, {"role": "king"}, {"name": "a b"}, {"name": ""}])
def test_what_cannot_be_a_user_is_refused(admin, change):
    assert admin.post("/v1/users", json=NEW | change).status_code == 400


def test_nobody_removes_themselves(admin):
    mine = names(admin)["boss@example.org"]["id"]
    assert admin.delete(f"/v1/users/{mine}").status_code == 400
    assert admin.delete("/v1/users/usr_none").status_code == 404


def test_a_database_of_the_first_version_keeps_its_rows(tmp_path):
    data = DataDir(tmp_path / "data").create()
    engine = database.make_engine(f"sqlite:///{data.database}")
    with engine.execution_options(benchmax_writes=True).begin() as connection:
        command.upgrade(schema_version.alembic_config(connection), "0001")
        connection.execute(sa.text("INSERT INTO users (id, email, role, created) VALUES ('u', 'a@b', 'admin', 1)"))
        columns = (
            "id, owner_id, name, kind, status, reason, activity, args, paths, blobs, error_count, created, updated"
        )
        values = "'r', 'u', 'old', 'simple', 'complete', '', '', '{}', '{}', '{}', 0, 1, 1"
        connection.execute(
            sa.text(f"INSERT INTO runs ({columns}, is_public, archived, tags) VALUES ({values}, 0, 0, '[]')")
        )
        connection.execute(
            sa.text(
                "INSERT INTO jobs (id, run_id, kind, state, priority, slots, created, available, attempts,"
                " max_attempts) VALUES (7, 'r', 'train', 'done', 0, 1, 1, 1, 1, 5)"
            )
        )
    engine.dispose()
    opened = database.open_database(data)
    with opened.read() as session:
        run = runs.get(session, "r")
        assert (run.name, run.pinned, run.notes, run.asked, run.parent) == ("old", False, "", {}, {})
        assert [job.id for job in jobs.of_run(session, "r")] == [7]
    opened.close()
