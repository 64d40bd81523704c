"""`benchmax up`: one process that keeps a server and a runner alive.

    keeper ─┬─ server    python -m benchmax.platform.server
            └─ runner    python -m benchmax.platform.runner

A child that dies is started again, later each time it dies young; one that is stuck (a server that answers nobody, a
runner whose loop stands still, a process that was stopped) is killed first. When the keeper itself dies, however it
dies, the kernel tells both to end. Everything about a running platform is in its data directory: keeper.json,
server.json, logs/.
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from benchmax.config import setting
from benchmax.errors import BenchmaxError, UsageError
from benchmax.files.atomic import write_text
from benchmax.platform.runner.processes import process_ids as proc
from benchmax.platform.sdk.credentials import answers
from benchmax.platform.store.datadir import DataDir

DEFAULT_PORT = 8321
START_SECONDS = 120.0
"""For the server to answer after `up`; a loaded machine takes its time. One that dies is not waited for."""
STOP_SECONDS = 25.0
"""For both to end; the runner gives its runs ten seconds to save."""
WAIT_SECONDS = 60.0
"""For the server and the runner of a keeper that was killed to end: they still save, and hold their places."""
LONG_LIFE = 30.0
"""A process that lived so long is started again at once."""
LONGEST_PAUSE = 15.0
REFUSALS = 3
"""Ends by its own will, young and in a row, after which the keeper gives up: a database that cannot be opened, say."""
HUNG_SECONDS = 90.0
"""Without a sign of life, after which a process is killed and started again. A loaded machine is slow for seconds."""
STOPPED_SECONDS = 10.0
"""The same for one that a signal stopped."""
LOOK_SECONDS = 2.0
LOG_BYTES = 32 * 1024 * 1024

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Options:
    """How a platform is started."""

    data: DataDir
    port: int = DEFAULT_PORT
    database_url: str | None = None
    console: Path | None = None

    def words(self) -> list[str]:
        """For a command line, which every user of the machine can read."""
        return ["--data", str(self.data.root)]

    def variables(self) -> dict[str, str]:
        """For a process's environment: the address of a database can hold a password."""
        return {**os.environ, "BENCHMAX_DATABASE_URL": self.database_url or ""}

    def server(self) -> list[str]:
        return [*self._with_port("benchmax.platform.server"), "--wait", str(WAIT_SECONDS)]

    def runner(self) -> list[str]:
        return [sys.executable, "-P", "-m", "benchmax.platform.runner", *self.words(), "--wait", str(WAIT_SECONDS)]

    def keeper(self) -> list[str]:
        return self._with_port("benchmax.platform.daemon")

    def _with_port(self, module: str) -> list[str]:
        console = ["--console", str(self.console)] if self.console else []
        return [sys.executable, "-P", "-m", module, *self.words(), "--port", str(self.port), *console]


@dataclass(slots=True)
class Kept:
    """A process that is kept alive."""

    name: str
    command: Sequence[str]
    variables: dict[str, str]
    log: Path
    lives: Callable[[], bool]
    """Asks for a sign of life."""
    popen: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    not_before: float = 0.0
    young: int = 0
    """Deaths in a row of processes that did not live long."""
    refused: int = 0
    """Those among them that were nobody's kill."""
    looked: float = 0.0
    seen: float | None = None
    """When it last gave one. A server may bring large tables up to date before its first."""

    def start(self) -> None:
        with open_log(self.log) as output:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self.popen = subprocess.Popen(self.command, preexec_fn=_end_with_parent, env=self.variables, **options)
        self.began, self.seen = time.monotonic(), None

    def check(self) -> None:
        """Kill a process that runs and does nothing any more; `tend` starts it again."""
        now = time.monotonic()
        if self.popen is None or now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        put_aside(self.log)
        if self.lives():
            self.seen = time.monotonic()
        stopped = proc.stopped(self.popen.pid)
        silent = now - (self.seen or (self.began if stopped else now))
        if silent > (STOPPED_SECONDS if stopped else HUNG_SECONDS):
            print(f"The {self.name} (process {self.popen.pid}) is stuck; it is started again.", file=sys.stderr)  # noqa: T201
            self.popen.kill()
            self.popen.wait()

    def tend(self) -> bool:
        """Start it if it does not run and the time has come; True when something changed."""
        now = time.monotonic()
        if self.popen is not None and self.popen.poll() is not None:
            old = now - self.began > LONG_LIFE
            self.young = 0 if old else self.young + 1
            self.refused = 0 if old or self.popen.returncode < 0 else self.refused + 1
            self.not_before = now + min(LONGEST_PAUSE, 0.25 * 2.0**self.young if self.young else 0.0)
            self.popen = None
        if self.popen is None and now >= self.not_before:
            self.start()
            return True
        return False

    def note(self) -> dict[str, Any]:
        return {} if self.popen is None else {"pid": self.popen.pid, "started": proc.started(self.popen.pid)}


@dataclass(slots=True)
class Keeper:
    """Keeps server and runner alive until told to stop."""

    options: Options
    on_ready: Callable[[], None] | None = None
    """Called once, when server and runner answer for the first time."""
    kept: list[Kept] = field(default_factory=list)
    stopping: bool = False

    def run(self) -> None:
        os.umask(0o077)
        options, data = self.options, self.options.data.create()
        self.kept = [
            Kept("server", options.server(), options.variables(), data.logs / "server.log", lambda: server_lives(data)),
            Kept("runner", options.runner(), options.variables(), data.logs / "runner.log", lambda: runner_lives(data)),
        ]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop())
        with data.lock("keeper"):
            try:
                self._keep()
            finally:
                self._end()
                keeper_file(data).unlink(missing_ok=True)
                data.server_info.unlink(missing_ok=True)

    def stop(self) -> None:
        self.stopping = True

    def _keep(self) -> None:
        self._write()
        ready = False
        while not self.stopping:
            for each in self.kept:
                each.check()
            changed = [each.tend() for each in self.kept]
            if any(changed) or not _is_whole(_read(keeper_file(self.options.data))):
                self._write()
            for each in self.kept:
                if each.refused >= REFUSALS:
                    raise UsageError(f"The {each.name} does not stay up. Its log, {each.log}, says why.")
            if not ready and platform_url(self.options.data, self.note()) is not None:
                ready = True
                self.options.data.note_database(self.options.database_url)
                if self.on_ready is not None:
                    self.on_ready()
            time.sleep(0.1)

    def note(self) -> dict[str, Any]:
        """What keeper.json holds."""
        pid = os.getpid()
        note: dict[str, Any] = {"pid": pid, "started": proc.started(pid), "port": self.options.port}
        return note | {"database_url": self.options.database_url, **{each.name: each.note() for each in self.kept}}

    def _write(self) -> None:
        write_text(keeper_file(self.options.data), json.dumps(self.note()), private=True)

    def _end(self) -> None:
        for each in self.kept:
            if each.popen is not None:
                each.popen.terminate()
        until = time.monotonic() + STOP_SECONDS
        for each in self.kept:
            if each.popen is not None:
                try:
                    each.popen.wait(max(0.1, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    each.popen.kill()
                    each.popen.wait()


def _end_with_parent() -> None:
    """In the child, before it becomes another program: SIGTERM when the keeper dies. Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


# From outside


def keeper_file(data: DataDir) -> Path:
    return data.root / "keeper.json"


def read_keeper(data: DataDir) -> dict[str, Any] | None:
    """What the keeper of this directory wrote down, if it is alive. One whose note is damaged is known by its lock."""
    note = _read(keeper_file(data))
    if _is_whole(note) and proc.alive(note["pid"], note["started"]):
        return note
    pid = data.holder("keeper")
    return None if pid is None else _note_from_locks(data, pid)


def _is_whole(note: dict[str, Any]) -> bool:
    return {"pid", "started", "port", "database_url", "server", "runner"} <= note.keys()


def _note_from_locks(data: DataDir, pid: int) -> dict[str, Any]:
    """The note anew, for the moment until the keeper has written it again."""
    held = {name: data.holder(name) for name in ("server", "runner")}
    kept = {name: {"pid": each, "started": proc.started(each)} if each else {} for name, each in held.items()}
    port = urlsplit(str(_read(data.server_info).get("url", ""))).port or DEFAULT_PORT
    return {"pid": pid, "started": proc.started(pid), "port": port, "database_url": data.database_url(), **kept}


def server_url(data: DataDir) -> str | None:
    """Where the platform answers, if it does."""
    note = _read(data.server_info)
    url, pid = note.get("url"), note.get("pid")
    if not isinstance(url, str) or not isinstance(pid, int) or proc.find(pid) is None:
        return None
    return url if answers(url) else None


def platform_url(data: DataDir, note: dict[str, Any]) -> str | None:
    """Where the platform of this keeper answers, once its server and its runner both do: not those of one before."""
    server, runner = ((note.get(name) or {}).get("pid") for name in ("server", "runner"))
    if runner is None or data.holder("runner") != runner or not runner_lives(data) or not _has_begun(data):
        return None
    url = server_url(data)
    return url if url is not None and _read(data.server_info).get("pid") == server else None


def _has_begun(data: DataDir) -> bool:
    """Whether the runner's loop turned since it has its place; before, the one of before it may have."""
    try:
        return data.runner_beat.stat().st_mtime >= (data.locks / "runner.lock").stat().st_mtime
    except OSError:
        return False


def server_lives(data: DataDir) -> bool:
    """Whether the server's loop turns. The wrong host is refused before anything that could wait for the database."""
    parts = urlsplit(str(_read(data.server_info).get("url", "")))
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 0, timeout=LOOK_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": "keeper.invalid"})
        return connection.getresponse().status > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def runner_lives(data: DataDir) -> bool:
    """Whether the runner's loop turned lately."""
    try:
        return time.time() - data.runner_beat.stat().st_mtime < 2 * LOOK_SECONDS
    except OSError:
        return False


def start(options: Options) -> str:
    """Start the platform in the background, unless it runs, and wait until server and runner answer; gives its
    address."""
    data = options.data.create()
    logs = {path: file_size(path) for path in (data.logs / "keeper.log", data.logs / "server.log")}
    if read_keeper(data) is None:
        _wait_for_server(data)
        _check_port(options.port)
        with open_log(data.logs / "keeper.log") as output:
            command = [*options.keeper(), "--detach"]
            null, variables = subprocess.DEVNULL, options.variables()
            subprocess.run(command, stdin=null, stdout=output, stderr=output, check=True, env=variables)
    until, seen = time.monotonic() + START_SECONDS, False
    while time.monotonic() < until:
        note = read_keeper(data)
        if note is not None and (url := platform_url(data, note)) is not None:
            return url
        if seen and note is None:
            break
        seen = seen or note is not None
        time.sleep(0.1)
    tails = "\n".join(filter(None, (tail(path, 5, since) for path, since in logs.items())))
    raise UsageError(f"The platform did not start. The last lines of {data.logs} are:\n{tails}")


def stop(data: DataDir) -> bool:
    """Stop the platform: its server, its runner and all runs; False when it did not run."""
    note = read_keeper(data)
    held = [pid for name in ("server", "runner") if (pid := data.holder(name))]
    left: list[dict[str, Any]] = [{"pid": pid, "started": proc.started(pid)} for pid in held]
    first = left if note is None else [note]
    for each in first:
        with suppress(ProcessLookupError):
            os.kill(each["pid"], signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS + 5.0
    while any(proc.alive(each["pid"], each["started"]) for each in first) and time.monotonic() < until:
        time.sleep(0.05)
    for each in first if note is None else (note, note.get("server") or {}, note.get("runner") or {}):
        if proc.alive(each.get("pid"), each.get("started")):
            os.kill(each["pid"], signal.SIGKILL)
    return bool(first)


def status(data: DataDir) -> dict[str, Any]:
    """What runs, where, and how many runs there are."""
    note = read_keeper(data)
    found: dict[str, Any] = {"running": note is not None, "url": server_url(data), "data": str(data.root)}
    for name in ("server", "runner"):
        process = (note or {}).get(name) or {}
        alive = proc.alive(process.get("pid"), process.get("started"))
        found[name] = {"running": alive, "pid": process.get("pid") if alive else None}
    url = note["database_url"] if note else data.database_url()
    if data.database.exists() or url:
        from benchmax.platform.store.database import open_database
        from benchmax.platform.store.queue import waiting as queue

        database = open_database(data, url, migrate=False)
        try:
            with database.read() as session:
                found |= queue.counts(session)
        finally:
            database.close()
    return found


def sign_in_link(options: Options) -> str:
    """An address that signs its bearer in, once."""
    from benchmax.platform.server.app import prepare
    from benchmax.platform.server.settings import ServerSettings
    from benchmax.platform.store.database import open_database

    database = open_database(options.data, options.database_url, migrate=False)
    try:
        settings = ServerSettings(
            data=options.data, database_url=options.database_url, port=options.port, console=options.console
        )
        return prepare(settings, database)
    finally:
        database.close()


def ensure_running(data: DataDir | None = None) -> str:
    """The address of this machine's platform, started in the background, and said so, when it does not run."""
    data = data or DataDir()
    if (url := server_url(data)) is not None:
        return url
    said = f"Starting the benchmax platform in the background (data in {data.root}; `benchmax down` stops it)."
    waiting = "The benchmax platform is about to answer; waiting for it."
    print(said if read_keeper(data) is None else waiting, file=sys.stderr)  # noqa: T201
    port = DEFAULT_PORT if is_free(DEFAULT_PORT) else free_port()
    try:
        return start(Options(data, port, data.database_url()))
    except UsageError:
        if is_free(port):
            raise
        # Somebody took the port after we had looked: if not this platform, started by another, then a stranger.
        return start(Options(data, free_port(), data.database_url()))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def tail(path: Path, lines: int, since: int = 0) -> str:
    """The last lines of a log, those after so many bytes."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, 2)
            first = max(since if since <= end else 0, end - LOG_BYTES)
            size, data = 400 * lines, b""
            while data.count(b"\n") <= lines and len(data) < end - first:
                start = file.seek(max(first, end - size))
                data, size = file.read(end - start), 4 * size
            return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""


def file_size(path: Path) -> int:
    """Bytes of a file; 0 when there is none, or when it is being put aside."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def put_aside(path: Path) -> None:
    """Keep a log that a process is writing from growing for ever: what it holds becomes the old log."""
    if file_size(path) > LOG_BYTES:
        with suppress(OSError):
            with open(path, "rb") as source, open_log(path.with_suffix(".log.1"), fresh=True) as target:
                shutil.copyfileobj(source, target)
            os.truncate(path, 0)  # who writes to it appends


def open_log(path: Path, fresh: bool = False) -> IO[bytes]:
    """A log to append to, private; one that grew large is put aside first. `fresh`: empty."""
    if not fresh and file_size(path) > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return open(path, "wb" if fresh else "ab", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, 0o600))


def _wait_for_server(data: DataDir) -> None:
    """The server of a keeper that was killed holds the port until it has ended."""
    until = time.monotonic() + WAIT_SECONDS
    while data.holder("server") is not None and time.monotonic() < until:
        time.sleep(0.05)


def _check_port(port: int) -> None:
    if not is_free(port):
        raise UsageError(f"Port {port} of 127.0.0.1 is in use by another program. Give another with --port.")


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _print_address(data: DataDir) -> int:
    try:
        print(ensure_running(data))  # noqa: T201
    except BenchmaxError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmax.platform.daemon")
    parser.add_argument("--data")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--console", type=Path)
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    parser.add_argument("--ensure", action="store_true", help="start a platform unless one runs, and print its address")
    given = parser.parse_args()
    if given.ensure:
        return _print_address(DataDir(given.data))
    if given.detach:
        if os.fork():
            return 0
        os.setsid()
    try:
        Keeper(Options(DataDir(given.data), given.port, setting("DATABASE_URL") or None, given.console)).run()
    except BenchmaxError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0
