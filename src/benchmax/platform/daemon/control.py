"""Starts and stops the platform of a data directory from another process, and says what of it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import Any

from benchmax.errors import UsageError
from benchmax.files.logs import file_size, open_log, tail
from benchmax.net import ports
from benchmax.platform.daemon.daemon import STOP_SECONDS
from benchmax.platform.daemon.liveness import identity, platform_url, read_daemon, server_url
from benchmax.platform.daemon.options import WAIT_SECONDS, Options
from benchmax.platform.runner.processes import process_ids
from benchmax.platform.store.datadir import DataDir

START_SECONDS = 120.0
"""For the server to answer after `up`; a loaded machine is slow. A server that dies is not waited for."""


def start(options: Options) -> str:
    """Start the platform in the background, unless it runs; returns its address once server and runner answer."""
    data = options.data.create()
    logs = {path: file_size(path) for path in (data.logs / "daemon.log", data.logs / "server.log")}
    if read_daemon(data) is None:
        _wait_for_server(data)
        if not ports.is_free(options.port):
            raise UsageError(
                f"Port {options.port} of 127.0.0.1 is in use by another program. Give another with --port."
            )
        with open_log(data.logs / "daemon.log") as output:
            command, null = [*options.daemon(), "--detach"], subprocess.DEVNULL
            subprocess.run(command, stdin=null, stdout=output, stderr=output, check=True, env=options.variables())
    if (url := _wait_for_address(data)) is not None:
        return url
    tails = "\n".join(filter(None, (tail(path, 5, since=since) for path, since in logs.items())))
    raise UsageError(f"The platform did not start. The last lines of {data.logs} are:\n{tails}")


def _wait_for_server(data: DataDir) -> None:
    """The server of a killed daemon holds the port until it has ended; one that is stuck is killed."""
    # A process that a signal stopped cannot notice that its daemon is gone.
    process_ids.send_signal(signal.SIGCONT, data.holder("server"), data.holder("runner"))
    until = time.monotonic() + WAIT_SECONDS
    while (pid := data.holder("server")) is not None and time.monotonic() < until + WAIT_SECONDS:
        if time.monotonic() >= until:
            process_ids.send_signal(signal.SIGKILL, pid)
        time.sleep(0.05)


def _wait_for_address(data: DataDir) -> str | None:
    """The platform's address once it answers; None when its daemon has given up, or the time is over."""
    until, seen = time.monotonic() + START_SECONDS, False
    while time.monotonic() < until:
        found = read_daemon(data)
        if found is not None and (url := platform_url(data, found)) is not None:
            return url
        if seen and found is None:
            return None
        seen = seen or found is not None
        time.sleep(0.1)
    return None


def ensure_running(data: DataDir) -> str:
    """The address of this machine's platform. If it does not run, it is started in the background, and that is said."""
    if (url := server_url(data)) is not None:
        return url
    starting = f"Starting the benchmax platform in the background (data in {data.root}; `benchmax down` stops it)."
    waiting = "The benchmax platform is about to answer; waiting for it."
    print(starting if read_daemon(data) is None else waiting, file=sys.stderr)  # noqa: T201
    port = ports.DEFAULT_PORT if ports.is_free(ports.DEFAULT_PORT) else ports.free_port()
    try:
        return start(Options(data, port, data.database_url()))
    except UsageError:
        if ports.is_free(port):
            raise
        # The port was taken after the check: by this platform, started by another process, or by another program.
        return start(Options(data, ports.free_port(), data.database_url()))


def stop(data: DataDir) -> bool:
    """Stop the platform with its server, its runner and all runs; False when it did not run."""
    found = read_daemon(data)
    if found is None:
        asked = processes = [identity(pid) for name in ("server", "runner") if (pid := data.holder(name))]
    else:
        asked, processes = [found], [found, found.get("server") or {}, found.get("runner") or {}]
    process_ids.send_signal(signal.SIGTERM, *(each["pid"] for each in asked))
    until = time.monotonic() + STOP_SECONDS + 5.0
    while any(_is_alive(each) for each in asked) and time.monotonic() < until:
        time.sleep(0.05)
    process_ids.send_signal(signal.SIGKILL, *(each["pid"] for each in processes if _is_alive(each)))
    return bool(asked)


def status(data: DataDir) -> dict[str, Any]:
    """What runs, where, and how many runs there are."""
    found = read_daemon(data)
    status: dict[str, Any] = {"running": found is not None, "url": server_url(data), "data": str(data.root)}
    for name in ("server", "runner"):
        process = (found or {}).get(name) or {}
        alive = _is_alive(process)
        status[name] = {"running": alive, "pid": process.get("pid") if alive else None}
    url = found["database_url"] if found else data.database_url()
    return status | _counts(data, url) if data.database.exists() or url else status


def _is_alive(process: dict[str, Any]) -> bool:
    return process_ids.alive(process.get("pid"), process.get("started"))


def _counts(data: DataDir, url: str | None) -> dict[str, Any]:
    from benchmax.platform.store.database import open_database
    from benchmax.platform.store.queue import jobs

    with closing(open_database(data, url, migrate=False)) as database, database.read() as db:
        return jobs.counts(db)


def sign_in_link(options: Options) -> str:
    """An address that signs its bearer in, once."""
    from benchmax.platform.server.app import prepare
    from benchmax.platform.server.settings import ServerSettings
    from benchmax.platform.store.database import open_database

    data, url = options.data, options.database_url
    with closing(open_database(data, url, migrate=False)) as database:
        return prepare(
            ServerSettings(data=data, database_url=url, port=options.port, console=options.console), database
        )
