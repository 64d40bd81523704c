"""What one caller, with a key or without, can do to all others: little (S39)."""

from __future__ import annotations

import json
import logging
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing

import pytest

from benchmax.files import logs
from benchmax.platform.server.security import body_limits, connection_limits
from benchmax.platform.server.security import middleware as guard
from benchmax.platform.server.services import run_feed
from benchmax.platform.store.runs import events
from platform_world import LiveServer, make_run


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("floods")) as server:
        server.user_id, server.key = server.user()
        yield server


def dial(world):
    return socket.create_connection(("127.0.0.1", world.port), timeout=60)


def is_closed(connection):
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def read_answer(connection):
    """The whole of an answer: its head and its body may come apart."""
    head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
    while len(body) < length:
        body += connection.recv(65_536)
    return head


def half_open(world, stack, count):
    half = [stack.enter_context(closing(dial(world))) for _ in range(count)]
    for each in half:
        try:
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127")
        except OSError:  # one of too many, closed already
            pass
    return half


def test_half_open_connections_are_in_nobodys_way(world, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 100.0)
    with ExitStack() as stack:
        half_open(world, stack, 300)
        began = time.monotonic()
        with world.client() as client:
            for _ in range(20):
                assert client.get("/healthz").status_code == 200
        assert time.monotonic() - began < 60, "nobody waits until they are given up"


def test_half_open_connections_are_given_up(world, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.5)
    with ExitStack() as stack:
        assert all(map(is_closed, half_open(world, stack, 100)))


def test_a_connection_that_has_just_come_is_not_closed_for_others(world, monkeypatch):
    """Under a flood a request is read late: 300 connections come between it and its connection."""
    for name in ("CHANCE_SECONDS", "HEADER_SECONDS"):
        monkeypatch.setattr(connection_limits, name, 100.0)  # on a busy machine it is not "just" otherwise
    with ExitStack() as stack:
        first = stack.enter_context(closing(dial(world)))
        for _ in range(300):
            stack.enter_context(closing(dial(world))).sendall(b"GET /he")
        first.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\n\r\n".encode())
        assert first.recv(65_536).startswith(b"HTTP/1.1 200")


def test_those_that_wait_too_long_make_room(world, monkeypatch):
    monkeypatch.setattr(connection_limits, "CHANCE_SECONDS", 0.0)
    with ExitStack() as stack:
        first = stack.enter_context(closing(dial(world)))
        for _ in range(2 * connection_limits.WAITING_PER_ADDRESS):
            stack.enter_context(closing(dial(world)))
        assert is_closed(first)


def test_a_second_request_gets_no_more_time_than_the_first(world, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 1.0)
    with closing(dial(world)) as connection:
        connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\n\r\n".encode())
        assert read_answer(connection).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        connection.sendall(b"GET /healthz HT")
        assert is_closed(connection)
        assert time.monotonic() - began < 14.0, "the usual time is 15 s"


@pytest.mark.parametrize("path", ["/login", "/api/auth/device/code", "/api/auth/device/token"])
def test_strangers_send_little(world, path):
    with world.client() as client:
        assert client.post(path, content=b"x" * (body_limits.OPEN_BYTES + 1)).status_code == 413

        def pieces():
            for _ in range(100):
                yield b"x" * 1024

        assert client.post(path, content=pieces()).status_code == 413
    with closing(dial(world)) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\nContent-Length: 60000000\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413"), "it was answered before a byte of the body came"


def test_a_body_that_does_not_come_is_not_waited_for(world, monkeypatch):
    monkeypatch.setattr(body_limits, "BODY_SECONDS", 1.0)
    for path, more in (("/login", ""), ("/v1/corpora", f"Authorization: Bearer {world.key}\r\n")):
        with closing(dial(world)) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\n{more}Content-Length: 100\r\n\r\n"
            connection.sendall(head.encode() + b"{")
            began = time.monotonic()
            assert connection.recv(100).startswith(b"HTTP/1.1 408")
            assert time.monotonic() - began < 60


def test_all_bodies_together_have_a_bound(world, monkeypatch):
    monkeypatch.setattr(body_limits, "HELD_BYTES", 200_000)
    with world.client(world.key) as client:
        body = {"query": "x" * 9000, "filters": {"x": "y" * 300_000}}
        answer = client.post("/v1/corpora/none/search", json=body)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        for _ in range(5):
            assert client.post("/v1/corpora/none/search", json={"query": "x" * 9000}).status_code == 404


def test_bodies_come_no_faster_than_others_can_bear(world, monkeypatch):
    monkeypatch.setattr(body_limits, "FASTEST_RATE", 1_000_000.0)
    began, done = time.monotonic(), threading.Event()

    def send():
        with world.client(world.key) as client:
            client.post("/v1/corpora/none/search", json={"query": "x", "filters": {"x": "y" * 3_000_000}})
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    with world.client() as client:
        assert client.get("/healthz").status_code == 200
    assert not done.is_set()
    sender.join(60)
    assert time.monotonic() - began > 2.0


def test_hanging_up_leaves_no_traceback(world, capfd, caplog):
    for path, more in (("/login", ""), ("/v1/corpora", f"Authorization: Bearer {world.key}\r\n")):
        for _ in range(5):
            with closing(dial(world)) as connection:
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\n{more}Content-Length: 50000\r\n\r\n"
                connection.sendall(head.encode() + b"{" * 100)
                time.sleep(0.02)
    with world.client() as client:
        assert client.get("/healthz").status_code == 200
    time.sleep(0.3)
    said = capfd.readouterr().err + caplog.text
    assert "Traceback" not in said
    assert "unexpected" not in said


def test_one_user_has_so_many_feeds_and_no_more(world, monkeypatch):
    monkeypatch.setattr(guard, "MOST_STREAMS", 3)
    _, other = world.user("other@example.org")
    with world.database.write() as session:
        run = make_run(session, "me@example.org")
        run_id, run.is_public = run.id, True
    path = f"/v1/train/runs/{run_id}/stream"
    with ExitStack() as stack:
        client = stack.enter_context(world.client(world.key))
        opened = [client.stream("GET", path) for _ in range(3)]
        for each in opened:
            assert stack.enter_context(each).status_code == 200
        refused = client.get(path)
        assert refused.status_code == 429
        for key in (other, None):
            with world.client(key) as someone, someone.stream("GET", path) as answer:
                assert answer.status_code == 200
    deadline = time.monotonic() + 60
    status = 429
    while status == 429 and time.monotonic() < deadline:
        with world.client(world.key) as client, client.stream("GET", path) as answer:
            status = answer.status_code
    assert status == 200


def test_who_follows_a_quiet_run_is_told_that_it_is_quiet(world, monkeypatch):
    monkeypatch.setattr(run_feed, "ALIVE_SECONDS", 0.3)
    with world.database.write() as session:
        run_id = make_run(session, "me@example.org").id
        events.append(session, run_id, "first")
    lines = []
    with world.client(world.key) as client, client.stream("GET", f"/v1/train/runs/{run_id}/stream") as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if line == ": alive" and lines.count(line) == 1:
                with world.database.write() as session:
                    events.append(session, run_id, "second")
            if lines.count(": alive") == 3:
                break
    told = [json.loads(line[6:])["type"] for line in lines if line.startswith("data: ")]
    assert told[-2:] == ["first", "second"]
    ids = [int(line[4:]) for line in lines if line.startswith("id: ")]
    assert ids == sorted(set(ids))
    assert len(ids) == len(told)


def test_logs_are_put_aside_while_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES", 1000)
    path = tmp_path / "server.log"
    with logs.open_log(path) as log:
        for number in range(22):
            log.write(b"%03d" % number + b"x" * 300 + b"\n")
            log.flush()
            logs.rotate(path)
    assert path.stat().st_size <= 1000
    old = tmp_path / "server.log.1"
    assert 1000 < old.stat().st_size < 2000
    assert old.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(b"0"), "no hole where the old lines were"


def test_what_strangers_provoke_is_logged_a_few_times_a_minute():
    few = connection_limits.LogRateLimit()
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid HTTP request received.", (), None)
    assert sum(few.filter(record) for _ in range(10_000)) == connection_limits.LINES_PER_MINUTE


def test_a_server_has_room_for_many_connections():
    code = "import resource; from benchmax.platform.server.security import connection_limits as c; "
    code += "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])); "
    code += "c.prepare_process(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(told.stdout) == (connection_limits.OPEN_FILES if hard < 0 else min(hard, connection_limits.OPEN_FILES))
