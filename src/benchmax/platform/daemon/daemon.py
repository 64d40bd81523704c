"""The process that keeps a server and a runner alive.

One that dies is started again, later each time it dies young. One that is stuck (a server that does not answer, a
runner whose loop stands still, a process stopped by a signal) is killed first. When the daemon itself dies, however it
dies, the kernel sends both SIGTERM; where the kernel cannot, the next start waits for them and `benchmax down` ends
them by their locks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmax import retries
from benchmax.concurrency import stop_signals
from benchmax.envs.remote.reaper import end_with_parent
from benchmax.errors import UsageError
from benchmax.files.atomic import read_object, write_text
from benchmax.files.logs import open_log, rotate
from benchmax.net import ports
from benchmax.platform.daemon import liveness
from benchmax.platform.daemon.options import Options
from benchmax.platform.runner.processes import process_ids

STOP_SECONDS = 25.0
"""For both to end; the runner gives its runs ten seconds to save."""
LONG_LIFE = 30.0
"""A process that lived so long is started again at once."""
LONGEST_PAUSE = 15.0
REFUSALS = 3
"""Exits in a row, young and not by a signal, after which the daemon gives up: a database that cannot be opened, say."""
HUNG_SECONDS = 90.0
"""Without a sign of life, after which a process is killed and started again. A loaded machine is slow for seconds."""
STOPPED_SECONDS = 10.0
"""The same for one that a signal stopped."""


@dataclass(slots=True)
class KeptProcess:
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
    """Deaths in a row of processes that did not live long, or could not be started."""
    refused: int = 0
    """Those among them that no signal caused."""
    looked: float = 0.0
    seen: float | None = None
    """When it last gave a sign of life. A server may migrate large tables before its first."""

    def start(self) -> None:
        with open_log(self.log) as output:
            self.popen = subprocess.Popen(
                self.command,
                preexec_fn=lambda: end_with_parent(signal.SIGTERM),
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.began, self.seen = time.monotonic(), None

    def check(self) -> None:
        """Kill a process that is stuck; `restart` starts it again."""
        now = time.monotonic()
        if self.popen is None or now - self.looked < liveness.LOOK_SECONDS:
            return
        self.looked = now
        rotate(self.log)
        if self.lives():
            self.seen = time.monotonic()
        stopped = process_ids.stopped(self.popen.pid)
        silent = now - (self.seen or (self.began if stopped else now))
        if silent > (STOPPED_SECONDS if stopped else HUNG_SECONDS):
            _say(f"The {self.name} (process {self.popen.pid}) is stuck; it is started again.")
            self.popen.kill()
            self.popen.wait()

    def restart(self) -> bool:
        """Start it if it does not run and its pause is over; True when something changed."""
        now = time.monotonic()
        if self.popen is not None and self.popen.poll() is not None:
            old = now - self.began > LONG_LIFE
            self.young = 0 if old else self.young + 1
            self.refused = 0 if old or self.popen.returncode < 0 else self.refused + 1
            self.not_before = now + (self._pause() if self.young else 0.0)
            self.popen = None
        if self.popen is not None or now < self.not_before:
            return False
        try:
            self.start()
        except OSError as error:  # no space for its log, or no memory for another process
            _say(f"The {self.name} cannot be started now ({error}); it is tried again.")
            self.young += 1
            self.not_before = now + self._pause()
            return False
        return True

    def _pause(self) -> float:
        return retries.pause(self.young, 0.5, LONGEST_PAUSE)


@dataclass(slots=True)
class Daemon:
    """Keeps server and runner alive until it is stopped."""

    options: Options
    on_ready: Callable[[], None] | None = None
    """Called once, when server and runner answer for the first time."""
    kept: list[KeptProcess] = field(default_factory=list)
    stopping: bool = False
    written: bool = False
    """Whether daemon.json names the processes that run now."""

    def run(self) -> None:
        os.umask(0o077)
        options, data, variables = self.options, self.options.data.create(), self.options.variables()
        server_lives, runner_lives = lambda: liveness.server_lives(data), lambda: liveness.runner_lives(data)
        self.kept = [
            KeptProcess("server", options.server(), variables, data.logs / "server.log", server_lives),
            KeptProcess("runner", options.runner(), variables, data.logs / "runner.log", runner_lives),
        ]
        for number in stop_signals():
            signal.signal(number, lambda *_: self.stop())
        with data.lock("daemon"):
            try:
                self._keep_alive()
            finally:
                self._end()
                liveness.daemon_file(data).unlink(missing_ok=True)
                data.server_info.unlink(missing_ok=True)

    def stop(self) -> None:
        self.stopping = True

    def _keep_alive(self) -> None:
        self._write()
        ready = False
        while not self.stopping:
            self._look_after_both()
            for each in self.kept:
                if each.refused >= REFUSALS or (not ready and self._lost_its_port(each)):
                    raise UsageError(f"The {each.name} does not stay up. Its log, {each.log}, says why.")
            ready = ready or self._became_ready()
            time.sleep(0.1)

    def _look_after_both(self) -> None:
        """Start again what has died or is stuck, and write down which processes run."""
        for each in self.kept:
            each.check()
        changed = [each.restart() for each in self.kept]
        self.written = self.written and not any(changed)
        if self.written and liveness.is_complete(read_object(liveness.daemon_file(self.options.data))):
            return
        with suppress(OSError):  # a full disk: until it can be written, both are found by their locks
            self._write()
            self.written = True

    def _lost_its_port(self, kept: KeptProcess) -> bool:
        """Whether a server could not start, and another program has its port: to try again would not help."""
        if kept.name != "server" or kept.popen is not None or not kept.refused:
            return False
        return self.options.data.holder("server") is None and not ports.is_free(self.options.port)

    def _became_ready(self) -> bool:
        if liveness.platform_url(self.options.data, self.to_dict()) is None:
            return False
        self.options.data.note_database(self.options.database_url)
        if self.on_ready is not None:
            self.on_ready()
        return True

    def to_dict(self) -> dict[str, Any]:
        """The content of daemon.json."""
        kept = {each.name: liveness.identity(each.popen.pid if each.popen else None) for each in self.kept}
        about = {"port": self.options.port, "database_url": self.options.database_url}
        return liveness.identity(os.getpid()) | about | kept

    def _write(self) -> None:
        write_text(liveness.daemon_file(self.options.data), json.dumps(self.to_dict()), private=True)

    def _end(self) -> None:
        running = [each.popen for each in self.kept if each.popen is not None]
        for popen in running:
            popen.terminate()
        until = time.monotonic() + STOP_SECONDS
        for popen in running:
            try:
                popen.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()


def _say(text: str) -> None:
    """Print to the daemon's log, unless its disk is full."""
    with suppress(OSError):
        print(text, file=sys.stderr)  # noqa: T201
