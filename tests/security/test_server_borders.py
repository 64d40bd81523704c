"""What comes from outside: other sites (S6) and hosts (S7), headers (S8), errors (S9), limits (S11), paths (S20, S21),
pickles (S30), file modes (S36), hostile uploads."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pickle
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

import benchmax.platform.server
import benchmax.platform.store
from benchmax.platform.server.security import last_uses
from benchmax.platform.server.security.scopes import routes_of
from benchmax.platform.store.accounts import logins, tokens
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import runs
from living import mode, paths_under
from platform_world import LiveServer, make_run
from runner_world import wait_until


@pytest.fixture(scope="module")
def key(live):
    return live.user("borders@example.org")[1]


@pytest.fixture
def session_cookie(live):
    user_id, _ = live.user("borders@example.org")
    with live.database.write() as session:
        return {"benchmax_session": logins.open_login(session, user_id)}


# S6

SITES = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "https://evil.test"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.test"},
]


@pytest.mark.parametrize("headers", SITES)
def test_other_sites_cannot_change_anything(live, key, session_cookie, headers):
    body = {"name": "from elsewhere"}
    for client in (live.client(cookies=session_cookie), live.client(key)):
        with client:
            for method, path in [("POST", "/v1/corpora"), ("PUT", "/v1/secrets/A"), ("DELETE", "/v1/keys/x")]:
                assert client.request(method, path, json=body, headers=headers).status_code == 403
    with live.client() as stranger:
        assert stranger.post("/login", json={"token": "x"}, headers=headers).status_code == 403
        assert stranger.put("/v1/storage/uploads/x", content=b"", headers=headers).status_code == 403


def test_a_cookie_alone_proves_nothing_but_our_own_page_may(live, key, session_cookie):
    with live.client(cookies=session_cookie) as browser:
        assert browser.post("/v1/corpora", json={"name": "a"}).status_code == 403
        own = {"Origin": live.url, "Sec-Fetch-Site": "same-origin"}
        made = browser.post("/v1/corpora", json={"name": "a"}, headers=own)
        assert made.status_code == 201
    with live.client(key) as program:
        assert program.delete(f"/v1/corpora/{made.json()['id']}").status_code == 200


def test_reading_changes_nothing(live, key, monkeypatch):
    """Every GET, as a signed-in user; the rows stay the same."""
    monkeypatch.setattr(tokens, "TOUCH_SECONDS", 3600.0)  # the use of a key is noted, but not in the midst of this
    with live.database.write() as session:
        run = make_run(session, "borders@example.org").id
    with live.client(key) as client:
        client.get("/v1/whoami")  # notes the time the key was last used, by another thread
        wait_until(lambda: not last_uses._waiting)
        before = table_sums(live)
        for method, path in routes_of(live.app):
            if method == "GET" and not path.endswith(("/stream", "/upload-url")):
                target = path.replace("{run_id}", run).replace("{rollout_id}", "x").replace("{corpus_id}", "x")
                client.get(target, params={"mode": "eval", "token": "x", "path": "a/b.jsonl"})
    assert table_sums(live) == before


def table_sums(live):
    import sqlalchemy as sa

    from benchmax.platform.store.tables import Base

    with live.database.read() as session:
        return {
            name: hashlib.sha256(repr(sorted(map(repr, session.execute(sa.select(table))))).encode()).hexdigest()
            for name, table in Base.metadata.tables.items()
        }


# S7


@pytest.mark.parametrize(
    "host",
    [
        "evil.test", "127.0.0.1.evil.test", "localhost.evil.test", "127.0.0.1@evil.test", "[::2]", "0.0.0.0",
        "2130706433", "127.1", "0x7f.1", "", "localhost:80:80", "127.0.0.1/evil", "evil.test:80", "localhost\tx",
    ],
)  # fmt: skip
def test_other_hosts_are_not_served_on_any_route(live, host):
    for path in ("/healthz", "/login", "/v1/train/runs", "/v1/train/runs/x/stream"):
        status, _, text = live.raw("GET", path, [("Host", host)])
        assert status in (400, 421), (path, text)


def test_our_own_names_are_served(live):
    for host in ("127.0.0.1", f"127.0.0.1:{live.port}", "localhost", "LOCALHOST:9", "[::1]", "[::1]:80"):
        assert live.raw("GET", "/healthz", [("Host", host)])[0] == 200, host


def test_two_hosts_no_host_and_an_absolute_target_are_refused(live):
    good = f"127.0.0.1:{live.port}"
    assert live.raw("GET", "/healthz", [("Host", good), ("Host", "evil.test")])[0] in (400, 421)
    assert live.raw("GET", "/healthz", [("Host", "evil.test"), ("Host", good)])[0] in (400, 421)
    assert live.raw("GET", "/healthz", [("X-A", "b")])[0] == 400
    assert live.raw("GET", "http://evil.test/healthz", [("Host", "evil.test")])[0] in (400, 421)
    status, _, _ = live.raw("GET", "http://evil.test/v1/whoami", [("Host", good)])
    assert status in (400, 401, 404, 421)


# S8


def test_every_answer_has_the_headers_and_none_opens_to_others(live, key):
    paths = ["/healthz", "/login", "/v1/whoami", "/v1/nothing", "/v1/train/runs?limit=x", "/openapi.json"]
    with live.client(key) as client, live.client() as stranger:
        answers = [client.get(path, headers={"Origin": "https://evil.test"}) for path in paths]
        answers += [stranger.get("/v1/whoami"), stranger.options("/v1/whoami"), client.post("/login", content=b"\xff")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        for part in ("default-src 'self'", "script-src 'self'", "object-src 'none'", "frame-ancestors 'none'"):
            assert part in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "server" not in answer.headers


# S9


def test_an_unexpected_error_gives_an_id_and_nothing_else(live, key, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("secret detail /etc/hidden sk_01234567_" + "a" * 43)

    monkeypatch.setattr("benchmax.platform.server.routes.runs.runs.runs.of_owner", broken)
    with live.client(key) as client:
        answer = client.get("/v1/train/runs")
    assert answer.status_code == 500
    number = answer.json()["error"].split("(")[1].split(")")[0]
    assert answer.json() == {
        "error": f"Something went wrong on the server ({number}). The server's log has the details."
    }
    assert answer.headers["x-content-type-options"] == "nosniff"
    log = capsys.readouterr().err
    assert number in log
    assert "secret detail" in log
    assert "sk_01234567_aaaa" not in log


def test_a_database_that_is_away_is_503(live, key, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def away(*_, **__):
        raise OperationalError("SELECT secret FROM users", {}, Exception("disk I/O error"))

    monkeypatch.setattr("benchmax.platform.server.routes.runs.runs.runs.of_owner", away)
    with live.client(key) as client:
        answer = client.get("/v1/train/runs")
    assert answer.status_code == 503
    assert "SELECT" not in answer.text
    assert "retry-after" in answer.headers


# S11


def test_too_many_calls_are_429_and_others_go_on(tmp_path):
    with LiveServer(tmp_path, limits_per_hour={"login": 600, "key": 3, "eval": 30, "device": 600}) as server:
        _, key = server.user("a@example.org")
        _, other = server.user("b@example.org")
        with server.client(key) as client, server.client(other) as second:
            statuses = [client.post("/v1/keys", json={}).status_code for _ in range(5)]
            assert statuses == [201, 201, 201, 429, 429]
            refused = client.post("/v1/keys", json={})
            assert 0 < int(refused.headers["retry-after"]) <= 3601
            assert second.post("/v1/keys", json={}).status_code == 201
            assert client.get("/v1/keys").status_code == 200
        with server.client() as stranger:
            statuses = [stranger.post("/login", json={"token": "x"}).status_code for _ in range(12)]
            assert statuses == [401] * 10 + [429] * 2


def test_a_body_that_is_too_large_is_413_however_it_is_sent(tmp_path):
    with LiveServer(tmp_path, body_bytes=1000, upload_bytes=2000) as server:
        _, key = server.user()

        def pieces(size):
            for _ in range(size // 100):
                yield b"a" * 100

        with server.client(key) as client:
            assert client.post("/v1/corpora", content=b" " * 1001).status_code == 413
            assert client.post("/v1/corpora", content=pieces(5000)).status_code == 413
            assert client.put(upload_url(client), content=b"a" * 2001).status_code == 413
            assert client.put(upload_url(client), content=pieces(5000)).status_code == 413
            assert client.put(upload_url(client), content=pieces(2000)).status_code == 201
        assert [path for path in server.data.blobs.iterdir() if path.name.startswith(".tmp")] == []


def upload_url(client, path="datasets/a/b.jsonl"):
    return client.get("/v1/storage/upload-url", params={"path": path, "mimeType": "application/jsonl"}).json()[
        "uploadUrl"
    ]


def test_a_broken_or_sleeping_upload_leaves_nothing_and_can_be_done_again(tmp_path):
    with LiveServer(tmp_path, idle_seconds=3.0) as server:
        _, key = server.user()
        with server.client(key) as client:
            url = upload_url(client)
            target = url.removeprefix(server.url)
            head = f"PUT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n".encode()
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(head + b"half")
                answer = connection.recv(1000)
                assert answer.startswith(b"HTTP/1.1 408")
            assert client.put(url, content=b"whole\n").status_code == 201
            assert client.put(url, content=b"again\n").status_code == 403
            files = client.get("/v1/storage/files").json()["files"]
        assert [(file["bytes"], file["sha256"]) for file in files] == [(6, hashlib.sha256(b"whole\n").hexdigest())]
        assert [path for path in server.data.blobs.iterdir() if path.name.startswith(".tmp")] == []


# S20, S21

TRAVERSAL = [
    "..", "../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e%252fetc", "..;/", "..\\..\\etc", "%00",
    "a%00b",
    "//proc/self/cwd/etc/passwd", "/etc/passwd", "．．/etc", "a" * 4096, "'; DROP TABLE runs; --", "run_" + "0" * 32,
]  # fmt: skip


@pytest.fixture(scope="module")
def opened_files():
    """Every path this process opens, the server's included; an audit hook can be set once and never removed."""
    opened: list[str] | None = []

    def hook(event, args):
        if event == "open" and opened is not None and isinstance(args[0], str):
            opened.append(os.path.abspath(args[0]))

    sys.addaudithook(hook)
    yield opened
    opened = None


@pytest.mark.parametrize("text", TRAVERSAL)
def test_no_name_reaches_outside_the_store(live, key, text, opened_files):
    with live.client(key) as client:
        for path in ("/v1/train/runs/{}", "/v1/train/runs/{}/checkpoints", "/v1/corpora/{}/chunks", "/v1/keys/{}"):
            status, _, body = live.raw(
                "GET",
                path.format(text.replace(" ", "%20").encode("ascii", "ignore").decode()),
                [("Host", "127.0.0.1"), ("Authorization", f"Bearer {key}")],
            )
            assert status in (400, 404, 405), (path, status)
            assert "root:" not in body
        for name in ("path", "prefix"):
            answer = client.get("/v1/storage/upload-url", params={name: f"{text}/x.jsonl", "mimeType": "a"})
            parts = f"{text}/x.jsonl".split("/")
            means_another = "\\" in text or not {"", "..", "．．"}.isdisjoint(parts[:-1])
            assert answer.status_code == (200 if not means_another and name == "path" else 400) or len(text) > 500
        assert client.get("/v1/datasets/preview", params={"path": text}).status_code in (400, 404)
        args = dict.fromkeys(("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path"), text)
        assert client.post("/v1/train/runs/launch", json={"args": args}).status_code in (400, 404)
    assert [path for path in opened_files if "etc/passwd" in path or path.startswith("/proc/self/root")] == []


def test_deleting_a_run_touches_rows_of_its_owner_only(live, key, tmp_path):
    outside = tmp_path / "kept"
    outside.write_text("x")
    with live.database.write() as session:
        mine, other = make_run(session, "borders@example.org").id, make_run(session, "else@example.org").id
    live.data.run(mine).mkdir(parents=True)
    (live.data.run(mine) / "link").symlink_to(outside)
    with live.client(key) as client:
        assert client.delete(f"/v1/train/runs/{mine}").status_code == 200
        assert client.delete(f"/v1/train/runs/{other}").status_code == 404
        assert client.delete(f"/v1/train/runs/{mine}").status_code == 404
    assert outside.read_text() == "x"
    with live.database.read() as session:
        assert runs.get(session, other) is not None


# S30


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


def test_a_deleted_runs_secrets_are_gone_at_once(live, key):
    from benchmax.platform.store.tables import Secret

    with live.database.write() as session:
        run = make_run(session, "borders@example.org")
        live.app.state.services.vault.put(session, run.owner_id, "A", "canary", run.id)
    with live.client(key) as client:
        assert client.delete(f"/v1/train/runs/{run.id}").status_code == 200
    with live.database.read() as session:
        assert session.query(Secret).filter_by(run_id=run.id).count() == 0


def test_a_hostile_pickle_is_never_opened(live, key, tmp_path):
    canary = tmp_path / "canary"
    hostile = pickle.dumps(Canary(str(canary)))
    with live.client(key) as client:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        digest = hashlib.sha256(hostile).hexdigest()
        files = {
            "env_cls_path": ("envs/h/1/env-cls.pkl", hostile),
            "env_metadata_path": (
                "envs/h/1/env-metadata.json",
                json.dumps({"python_version": version, "sha256": digest}).encode(),
            ),
            "train_dataset_path": ("datasets/h/1/train.jsonl", b'{"prompt": "a", "ground_truth": "b"}\n' * 20),
            "eval_dataset_path": ("datasets/h/1/eval.jsonl", b'{"prompt": "c", "ground_truth": "d"}\n'),
        }
        for path, content in files.values():
            assert client.put(upload_url(client, path), content=content).status_code == 201
        args = {name: path for name, (path, _) in files.items()}
        launched = client.post("/v1/train/runs/launch", json={"args": args})
        assert launched.status_code == 201, launched.text
        run = launched.json()["runId"]
        for part in ("", "/details", "/events", "/checkpoints"):
            assert client.get(f"/v1/train/runs/{run}{part}").status_code == 200
        for path in args.values():
            client.get("/v1/datasets/preview", params={"path": path})
        swapped = {**args, "train_dataset_path": args["env_cls_path"], "env_metadata_path": args["env_cls_path"]}
        assert client.post("/v1/train/runs/launch", json={"args": swapped}).status_code == 400
        client.put(upload_url(client, "envs/h/1/env-cls.pkl"), content=hostile + b"tampered")
        tampered = client.post("/v1/train/runs/launch", json={"args": args})
        assert tampered.status_code == 400
        assert "SHA-256" in tampered.json()["error"]
    assert not canary.exists()
    pickle.loads(hostile)
    assert canary.exists()  # the canary itself works


def test_server_and_store_hold_no_way_to_run_what_they_are_given():
    forbidden = {"eval", "exec", "compile", "__import__"}
    modules = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "subprocess", "importlib", "runpy"}
    # It starts one program, our own reader of rows, by a command in which nothing is a caller's.
    allowed = {"bounded_rows.py": {"subprocess"}}
    for package in (benchmax.platform.server, benchmax.platform.store):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    assert node.func.id not in forbidden, path
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found = {name.split(".")[0] for name in names} & modules
                assert found <= allowed.get(path.name, set()), path
    started = (Path(benchmax.platform.server.__path__[0]) / "services/datasets/bounded_rows.py").read_text()
    assert started.count("subprocess.Popen(command,") == started.count("subprocess.Popen(") == 1
    assert 'command = [sys.executable, "-P", "-m", "benchmax.platform.server.services.datasets.rows_child"]' in started


# S36


def test_files_are_private(tmp_path):
    with LiveServer(tmp_path) as server:
        from benchmax.platform.server.app import prepare

        prepare(server.settings, server.database)
        _, key = server.user()
        with server.client(key) as client:
            client.put(upload_url(client), content=b"x\n")
        for path in [server.data.root, *paths_under(server.data.root)]:
            assert mode(path) & 0o077 == 0, (path, oct(mode(path)))


# F8, F20 for the whole server, F23


def test_a_database_that_cannot_be_written_is_refused_in_words(tmp_path):
    data = DataDir(tmp_path).create()
    open_database(data).close()
    data.database.write_bytes(b"\0" * 100 + data.database.read_bytes()[100:])
    from benchmax.errors import UsageError

    with pytest.raises(UsageError, match="cannot be used"):
        open_database(data)


def test_opening_and_closing_leaves_no_descriptors_and_no_threads(tmp_path):
    def once(number):
        with LiveServer(tmp_path / str(number)) as server, server.client() as client:
            assert client.get("/healthz").status_code == 200

    def held():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    once(0)
    before = held()
    for number in range(1, 6):
        once(number)
    end = time.monotonic() + 60
    while any(now > then + 2 for now, then in zip(held(), before, strict=True)) and time.monotonic() < end:
        time.sleep(0.05)  # a thread ends a moment after it was told to
    after = held()
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
