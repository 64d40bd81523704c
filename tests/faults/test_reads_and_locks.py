"""A database that cannot be written now: who only reads does not wait. And progress that does not go backwards."""

from __future__ import annotations

import sqlite3
import time

import pytest

from benchmax.platform.server.security import last_uses
from benchmax.platform.server.services.runs.run_views import latest_step
from benchmax.platform.store.accounts import users
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import ApiKey
from platform_world import LiveServer, make_run


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locked")
    with LiveServer(folder, database_url=f"sqlite:///{folder / 'own.db'}") as server:
        server.file = folder / "own.db"
        yield server


def test_reads_do_not_wait_for_a_locked_database(world):
    _, key = world.user()
    user_id, _ = world.user("web@example.org")
    with world.database.write() as session:
        run_id = make_run(session, "me@example.org").id
        cookie = users.open_login(session, user_id)
    with world.database.write() as session:
        for row in session.query(users.Login):
            row.last_seen = time.time() - 3600
    holder = sqlite3.connect(world.file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        began = time.monotonic()
        with world.client(key) as client, world.client(cookies={"benchmax_session": cookie}) as browser:
            for _ in range(3):
                assert client.get("/v1/train/runs").status_code == 200
                assert client.get(f"/v1/train/runs/{run_id}/details").status_code == 200
                assert browser.get("/v1/whoami").status_code == 200
        assert time.monotonic() - began < 10, "a read waited for the lock"
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    deadline = time.monotonic() + 60
    while last_uses._waiting and time.monotonic() < deadline:
        time.sleep(0.05)
    with world.database.read() as session:
        assert session.query(ApiKey).filter_by(digest=users.digest(key)).one().last_used > time.time() - 120


def test_the_latest_step_does_not_go_backwards_while_a_run_works(world):
    with world.database.write() as session:
        run_id = make_run(session, "me@example.org").id
        runs.set_status(session, run_id, "active")
    shown = []
    for step in (0, 5, 6, 7, 5, 6, 7, 8):  # killed after 7, and begun again from the checkpoint of 5
        with world.database.write() as session:
            runs.set_progress(session, run_id, step=step)
        with world.database.read() as session:
            shown.append(latest_step(runs.get(session, run_id)))
    assert shown == [0, 5, 6, 7, 7, 7, 7, 8]
