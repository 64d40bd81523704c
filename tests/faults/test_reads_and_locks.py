"""A database that cannot be written now: who only reads does not wait. And progress that does not go backwards."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from benchmax.platform.server import threads
from benchmax.platform.server.security import last_uses
from benchmax.platform.server.services.datasets import bounded_rows
from benchmax.platform.server.services.runs.run_views import latest_step
from benchmax.platform.store import database
from benchmax.platform.store.accounts import logins, tokens
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import ApiKey, Login
from platform_world import LiveServer, make_run
from runner_world import wait_until


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
        cookie = logins.open_login(session, user_id)
    with world.database.write() as session:
        for row in session.query(Login):
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
        assert time.monotonic() - began < database.BUSY_SECONDS, "a read waited for the lock"
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    deadline = time.monotonic() + 60
    while last_uses._waiting and time.monotonic() < deadline:
        time.sleep(0.05)
    with world.database.read() as session:
        assert session.query(ApiKey).filter_by(digest=tokens.digest(key)).one().last_used > time.time() - 120


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


def answered(world, key, count, call):
    """The statuses of so many calls at once, as they come; the calls go on in threads."""
    pool = ThreadPoolExecutor(count)

    def one(_):
        with world.client(key) as client:
            return call(client).status_code

    return pool, [pool.submit(one, number) for number in range(count)]


def seconds_to_read(world, key):
    began = time.monotonic()
    with world.client(key) as client:
        for _ in range(3):
            assert client.get("/v1/train/runs").status_code == 200
    return time.monotonic() - began


def test_reads_do_not_wait_for_many_who_write(world):
    _, key = world.user()
    with world.database.write() as session:
        run_id = make_run(session, "me@example.org").id
    holder = sqlite3.connect(world.file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    asks = {"path": "datasets/a.jsonl", "mimeType": "x/y"}
    try:
        pool, changes = answered(world, key, 40, lambda to: to.patch(f"/v1/train/runs/{run_id}", json={"name": "new"}))
        other, urls = answered(world, key, 40, lambda to: to.get("/v1/storage/upload-url", params=asks))
        wait_until(lambda: threads_that_write() >= threads.THREADS["writes"])
        assert seconds_to_read(world, key) < database.BUSY_SECONDS
        assert not any(each.done() for each in (*changes, *urls))
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert {each.result(60) for each in (*changes, *urls)} == {200}
    pool.shutdown()
    other.shutdown()


def threads_that_write():
    """Threads of this process that are in a transaction that writes."""
    stacks = sys._current_frames().values()
    return sum(
        any(frame.f_code.co_name == "_begin_sqlite" for frame, _ in traceback.walk_stack(each)) for each in stacks
    )


def test_reads_do_not_wait_for_large_files(world):
    _, key = world.user()
    rows = json.dumps([{"prompt": f"{number}?", "ground_truth": "1"} for number in range(200)])
    with world.client(key) as client:
        assert client.post("/v1/datasets", params={"name": "a.json"}, content=rows).status_code == 201
    with ExitStack() as held:
        for _ in range(bounded_rows.AT_ONCE):  # others have large files read
            bounded_rows._places.acquire()
            held.callback(bounded_rows._places.release)
        preview = "/v1/datasets/preview?path=datasets/a.json"
        pool, previews = answered(world, key, 2 * threads.FILES_ASKED, lambda to: to.get(preview))
        wait_until(lambda: sum(each.done() for each in previews) == threads.FILES_ASKED)  # refused
        assert seconds_to_read(world, key) < bounded_rows.WAIT_SECONDS / 2
    assert Counter(each.result(60) for each in previews) == {200: threads.FILES_ASKED, 429: threads.FILES_ASKED}
    pool.shutdown()
