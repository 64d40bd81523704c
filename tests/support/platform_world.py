"""What the platform's tests stand on: a data directory, both databases, a server in this process or on a port."""

from __future__ import annotations

import asyncio
import functools
import http.client
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def postgres_programs() -> Path | None:
    """Where PostgreSQL's own programs are, when they can be used here."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    can_switch = os.geteuid() != 0 or shutil.which("runuser")
    return found[-1].parent if found and can_switch else None


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL of our own in `folder`, reachable by a socket there; gives its URL."""
    programs = postgres_programs()
    assert programs is not None
    folder.mkdir(parents=True, exist_ok=True)
    prefix: list[str] = []
    if os.geteuid() == 0:
        prefix = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
        for parent in folder.parents:  # pytest's folders are closed to others
            if parent.stat().st_uid == 0 and parent not in (Path("/"), Path("/tmp")):
                parent.chmod(parent.stat().st_mode | 0o011)
    data = folder / "data"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": folder}
    subprocess.run([*prefix, programs / "initdb", "-D", data, "-U", "benchmax", "-A", "trust", "-N"], **quiet)
    start_postgres(folder)
    try:
        yield f"postgresql://benchmax@/postgres?host={folder}"
    finally:
        stop_postgres(folder, check=False)


def start_postgres(folder: Path) -> None:
    """Start the one made in `folder` (again)."""
    options = f"-k {folder} -c listen_addresses= -c fsync=off"
    _control(folder, "-o", options, "-l", folder / "log", "-w", "start")


def stop_postgres(folder: Path, mode: str = "immediate", check: bool = True) -> None:
    """Stop it; `immediate` is what a power cut is."""
    _control(folder, "-m", mode, "stop", check=check)


def _control(folder: Path, *words: object, check: bool = True) -> None:
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": folder}
    subprocess.run([*prefix, postgres_programs() / "pg_ctl", "-D", folder / "data", *words], check=check, **quiet)


@pytest.fixture(scope="session")
def postgres_url():
    pytest.importorskip("psycopg")
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    # Not below pytest's own folder: every test run that begins closes that to other users, PostgreSQL's among them.
    temporary = tempfile.TemporaryDirectory(prefix="benchmax-pg-", ignore_cleanup_errors=True)
    with temporary as folder, postgres(Path(folder)) as url:
        yield url


everywhere: list[str] = []
"""The PostgreSQL that all servers of this test run use, if they do."""


@pytest.fixture(scope="session", autouse=True)
def servers_on_postgres(request):
    """With BENCHMAX_TEST_DATABASE=postgres every `LiveServer` has a PostgreSQL database of its own."""
    if os.environ.get("BENCHMAX_TEST_DATABASE") == "postgres":
        everywhere.append(request.getfixturevalue("postgres_url"))
    yield
    everywhere.clear()


def new_database(url):
    """The URL of a new database on the same server."""
    import psycopg

    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.replace("/postgres?", f"/{name}?")


def fresh_database(url):
    """The URL, of a database emptied of all tables."""
    import sqlalchemy as sa

    from benchmax.platform.store import database

    engine = database.make_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    return url


def open_new(data, url=None):
    """The database of a new data directory; the tables of an SQLite one are made once and copied."""
    from benchmax.platform.store import database

    if url is None and not data.database.exists():
        data.database.touch(0o600)
        data.database.write_bytes(_empty_database())
    return database.open_database(data, url)


@functools.cache
def _empty_database() -> bytes:
    from benchmax.platform.store import database
    from benchmax.platform.store.datadir import DataDir

    with tempfile.TemporaryDirectory() as folder:
        data = DataDir(Path(folder) / "data").create()
        database.open_database(data).close()
        return data.database.read_bytes()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    """An open database of each kind."""
    from benchmax.platform.store.datadir import DataDir

    url = fresh_database(request.getfixturevalue("postgres_url")) if request.param == "postgres" else None
    opened = open_new(DataDir(tmp_path / "data").create(), url)
    yield opened
    opened.close()


def metric_values(session, run_id, mode, names=None):
    """`{name: [{step, value}]}` of one mode, of all metrics or some."""
    from benchmax.platform.store.runs import metrics

    found = json.loads(metrics.encoded(session, run_id, mode))
    return {name: values for name, values in found.items() if names is None or name in names}


def make_run(session, email="a@example.org", **more):
    from benchmax.platform.store.accounts import users
    from benchmax.platform.store.runs import runs

    owner = users.ensure_user(session, email)
    values = {"name": "r", "kind": "simple", "args": {"lr": 0.1}, "paths": {}, "blobs": {}} | more
    return runs.create(session, owner_id=owner.id, **values)


SLOWEST = float(os.environ.get("BENCHMAX_TEST_SLOWEST") or 0)
"""Seconds an answer may be late, each by its own chance: shows tests of pages that read what has not arrived."""


class LiveServer:
    """A real server on a loopback port, with its database at hand."""

    def __init__(self, folder: Path, *, port: int = 0, **settings):
        from benchmax.platform.server.settings import ServerSettings
        from benchmax.platform.store.datadir import DataDir

        # The protocol must be named: asyncio sets TCP_NODELAY on such sockets only.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen()
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = DataDir(folder / "data").create()
        if everywhere and "database_url" not in settings:
            settings["database_url"] = new_database(everywhere[0])
        self.settings = ServerSettings(data=self.data, port=self.port, **settings)
        self.database = open_new(self.data, self.settings.database_url)
        self.late: dict[str, float] = {}  # seconds, by the last part of a path

    async def _answer(self, scope, receive, send):
        """Like the app, behind a network that may be slow."""
        path = scope.get("path", "")
        if late := self.late.get(path.rpartition("/")[2]) or random.uniform(0, SLOWEST) * path.startswith("/v1"):
            await asyncio.sleep(late)
        await self.app(scope, receive, send)

    def user(self, email="me@example.org", scopes=("read", "write", "admin"), role="member", days=None):
        """A user's id and a key of theirs."""
        from benchmax.platform.store.accounts import api_keys, users

        with self.database.write() as session:
            user = users.ensure_user(session, email, role)
            return user.id, api_keys.create_key(session, user.id, scopes=scopes, days=days)[1]

    def key_for(self, request):
        """A key of a user whom no other test has."""
        return self.user(f"{request.node.name}@example.org".replace("[", "-").replace("]", ""))[1]

    def set_password(self, user_id, password):
        from benchmax.platform.server.security.passwords import hash_password
        from benchmax.platform.store.accounts import users

        with self.database.write() as session:
            users.set_password_hash(session, user_id, hash_password(password))

    def client(self, key=None, **more):
        import httpx2

        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, **more)

    def raw(self, method, target, headers=(), body=None):
        """A request whose target and headers are sent as they are; gives (status, headers, text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers or [("Host", f"127.0.0.1:{self.port}")]:
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def __enter__(self):
        import uvicorn

        from benchmax.platform.server.app import create_app
        from benchmax.platform.server.security import connection_limits

        self.app = create_app(self.settings, self.database)
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            log_level="warning",
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=1,
            server_header=False,
            **connection_limits.options(),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.01)
        assert self._server.started
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()
        self.database.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """One server for the tests of a module."""
    with LiveServer(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def client(live, key):
    """The API, called with the key of the module's user."""
    with live.client(key) as client:
        yield client
