"""SQLite that is locked, read-only or damaged: waited for, refused in words, never a 500 without one (F8)."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from benchmax.errors import UsageError
from benchmax.platform.store import database as store
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from platform_world import LiveServer, make_run


@contextmanager
def locked(path):
    """Somebody else writes, and takes his time."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def on_sqlite(folder):
    return LiveServer(folder, database_url=f"sqlite:///{folder / 'own.db'}")


def test_a_write_waits_for_a_lock_that_is_held_for_a_while(tmp_path):
    with on_sqlite(tmp_path) as server:
        _, key = server.user()
        answers = []

        def make():
            with server.client(key) as client:
                answers.append(client.post("/v1/corpora", json={"name": "mine"}).status_code)

        writer = threading.Thread(target=make)
        with locked(tmp_path / "own.db"):
            writer.start()
            time.sleep(3.0)  # how long the lock is held
            assert answers == []
        writer.join(60)
    assert answers in ([200], [201])


def test_a_lock_that_is_not_given_back_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 1.0)
    with on_sqlite(tmp_path) as server:
        _, key = server.user()
        with locked(tmp_path / "own.db"), server.client(key) as client:
            began = time.monotonic()
            answer = client.post("/v1/corpora", json={"name": "mine"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert time.monotonic() - began < 60
            assert client.get("/v1/train/runs").status_code == 200
        with server.client(key) as client:
            assert client.post("/v1/corpora", json={"name": "mine"}).status_code in (200, 201)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_file_that_cannot_be_written_is_refused_in_words(tmp_path):
    data = DataDir(tmp_path).create()
    open_database(data).close()
    mount = ["mount", "--bind", str(data.database), str(data.database)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(data.database)], check=True)
        words = [sys.executable, "-m", "benchmax.platform.server", "--data", str(data.root), "--port", "0"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "Read-only" in done.stderr
        assert str(data.database) in done.stderr
    finally:
        subprocess.run(["umount", str(data.database)], check=True)


def damage(path, at=0.5):
    """Flip bytes of a page in the middle; the first page, which tells what the file is, stays whole."""
    content = bytearray(path.read_bytes())
    page = max(1, int(len(content) // 4096 * at)) * 4096
    for place in range(page, page + 4096):
        content[place] ^= 0xFF
    path.write_bytes(content)


def test_a_damaged_file_is_refused_at_the_start(tmp_path):
    data = DataDir(tmp_path).create()
    database = open_database(data)
    with database.write() as session:
        for number in range(50):
            make_run(session, name=f"run {number}", args={"text": "x" * 2000})
    database.close()
    with sqlite3.connect(data.database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    damage(data.database)
    with pytest.raises(UsageError, match="backup") as refused:
        open_database(data)
    assert "damaged" in str(refused.value) or "cannot be used" in str(refused.value)
    words = [sys.executable, "-m", "benchmax.platform.server", "--data", str(data.root), "--port", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_damage_while_it_runs_is_told_without_details(tmp_path):
    with on_sqlite(tmp_path) as server:
        _, key = server.user()
        with server.database.write() as session:
            for number in range(50):
                make_run(session, "me@example.org", name=f"run {number}", args={"text": "x" * 2000})
        server.database.engine.dispose()
        path = tmp_path / "own.db"
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs'").fetchall()
        connection.close()
        content = bytearray(path.read_bytes())
        for (number,) in pages:
            content[(number - 1) * 4096 : number * 4096] = b"\xff" * 4096
        path.write_bytes(content)
        with server.client(key) as client:
            answer = client.get("/v1/train/runs")
        assert answer.status_code == 503
        assert "damaged" in answer.json()["error"]
        assert "own.db" not in answer.text
