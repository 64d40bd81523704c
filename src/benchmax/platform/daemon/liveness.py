"""Which processes of a platform run and answer, read from its data directory by any other process."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from typing import Any

from benchmax.files.atomic import read_object
from benchmax.files.logs import modified_at
from benchmax.net.origins import origin
from benchmax.net.ports import DEFAULT_PORT
from benchmax.platform.runner.processes import process_ids
from benchmax.platform.sdk.auto_start import answers, local_url
from benchmax.platform.store.datadir import DataDir

LOOK_SECONDS = 2.0
"""Between two looks at a process, and how long the server has for its answer."""
FORMER_NAME = "keeper"
"""The daemon's name in data directories of earlier versions: one that still runs can be found and stopped."""
_KEYS = {"pid", "started", "port", "database_url", "server", "runner"}


def daemon_file(data: DataDir) -> Path:
    """What the daemon writes about itself, its server and its runner."""
    return data.root / "daemon.json"


def read_daemon(data: DataDir) -> dict[str, Any] | None:
    """The content of daemon.json, if that daemon is alive. If the file is damaged, its lock identifies it."""
    for path in (daemon_file(data), data.root / f"{FORMER_NAME}.json"):
        found = read_object(path)
        if is_complete(found) and process_ids.alive(found["pid"], found["started"]):
            return found
    pid = data.holder("daemon") or data.holder(FORMER_NAME)
    return None if pid is None else _from_locks(data, pid)


def is_complete(found: dict[str, Any]) -> bool:
    return found.keys() >= _KEYS


def _from_locks(data: DataDir, pid: int) -> dict[str, Any]:
    """The content of daemon.json, until the daemon has written it again."""
    port = origin(str(read_object(data.server_info).get("url", ""))).port or DEFAULT_PORT
    found = {**identity(pid), "port": port, "database_url": data.database_url()}
    return found | {name: identity(data.holder(name)) for name in ("server", "runner")}


def identity(pid: int | None) -> dict[str, Any]:
    """A process by pid and start time; empty without one."""
    return {} if pid is None else {"pid": pid, "started": process_ids.started(pid)}


def server_url(data: DataDir) -> str | None:
    """Where the platform answers, if it does."""
    url = local_url(data.root)
    return url if url is not None and answers(url) else None


def platform_url(data: DataDir, found: dict[str, Any]) -> str | None:
    """Where this daemon's platform answers, once its own server and runner do, not those of an earlier daemon."""
    server, runner = ((found.get(name) or {}).get("pid") for name in ("server", "runner"))
    if runner is None or data.holder("runner") != runner or not runner_lives(data):
        return None
    # An earlier heartbeat than its lock is of the previous runner.
    if not modified_at(data.runner_beat) >= modified_at(data.locks / "runner.lock") > 0.0:
        return None
    url = server_url(data)
    return url if url is not None and read_object(data.server_info).get("pid") == server else None


def server_lives(data: DataDir) -> bool:
    """Whether the server's loop turns. A wrong host is refused before anything that could wait for the database."""
    _, host, port = origin(str(read_object(data.server_info).get("url", "")))
    connection = http.client.HTTPConnection(host or "127.0.0.1", port, timeout=LOOK_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": "daemon.invalid"})
        return connection.getresponse().status > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def runner_lives(data: DataDir) -> bool:
    """Whether the runner's loop turned lately."""
    return time.time() - modified_at(data.runner_beat) < 2 * LOOK_SECONDS
