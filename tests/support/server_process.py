"""The platform's server as a program of its own, for tests of what it takes and of how it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx2
import psutil

from benchmax.net import ports
from benchmax.platform.store.accounts import api_keys, users
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from runner_world import wait_until


class ServerProcess:
    """A server on a port of its own, with its database at hand."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.data, self.port = DataDir(folder / "data").create(), ports.free_port()
        self.database = open_database(self.data, None)
        words = [sys.executable, "-m", "benchmax.platform.server", "--data", str(self.data.root)]
        with open(self.data.logs / "server.log", "ab") as log:
            given = [*words, "--port", str(self.port), *options]
            self.popen = subprocess.Popen(given, stdout=log, stderr=log)
        wait_until(self.data.server_info.exists, 90)

    def user(self, email="me@example.org"):
        """A user's id and a key of theirs."""
        with self.database.write() as session:
            user = users.ensure_user(session, email)
            return user.id, api_keys.create_key(session, user.id)[1]

    def client(self, key=None, **more):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=120, **more)

    def memory(self):
        return psutil.Process(self.popen.pid).memory_info().rss

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.terminate()
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.database.close()
