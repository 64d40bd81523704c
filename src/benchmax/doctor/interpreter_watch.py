"""Runs work in a child process and ends it when it holds the interpreter: a regular expression that never ends, say.

Python itself cannot interrupt such code. The child writes a beat into a pipe every second; when the beats stop, a
signal makes it report where it is (the handler needs no interpreter), and it is killed.

    parent                              child
    run_in_child(work) ── forks ──▶  beats ─── work ─── result, as JSON, in a file
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmax import errors
from benchmax.errors import BenchmaxError
from benchmax.files.links import read_plain

BEAT_SECONDS = 1.0
BEAT, DONE = b".", b"="
DUMP_BYTES = 1 << 20
STALL_SECONDS = 20.0
"""Seconds without a beat after which the interpreter counts as held. Slow code lets other threads run in between."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_PACKAGE, _STANDARD = (os.path.join(os.path.dirname(str(module.__file__)), "") for module in (errors, os))
_NOT_THE_ENVIRONMENT = (_PACKAGE, _STANDARD, "<frozen")
_BUILT_IN = os.path.join(_PACKAGE, "envs", "")


class InterpreterHeld(Exception):
    """The work held the interpreter; `where` is the place."""

    def __init__(self, where: str, seconds: float) -> None:
        self.where, self.seconds = where, seconds
        super().__init__(f"{where} held the interpreter for {seconds:.0f} s and was ended")


def can_watch() -> bool:
    """Whether this system can fork and report where a process is."""
    return hasattr(os, "fork") and hasattr(faulthandler, "register")


def run_in_child(work: Callable[[], dict[str, Any]], *, seconds: float | None = None) -> dict[str, Any]:
    """The result of `work`, plain JSON, computed in a fork of this process. Raises what it raises, and InterpreterHeld
    when it holds its interpreter for longer than `seconds`."""
    seconds = STALL_SECONDS if seconds is None else seconds
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="benchmax-doctor-") as folder:
        dump, result = Path(folder) / "where", Path(folder) / "result"
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work(work, writing, dump, result)
        os.close(writing)
        try:
            wait_for_end(reading, lambda: os.kill(pid, signal.SIGUSR1), dump, seconds)
            outcome: dict[str, Any] = json.loads(result.read_text("utf-8"))
        except FileNotFoundError:
            raise RuntimeError("The environment ended the process that examined it (os._exit, a crash).") from None
        finally:
            os.close(reading)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if "raised" in outcome:
        raise _error(**outcome["raised"])
    value: dict[str, Any] = outcome["value"]
    return value


def send_beats(writing: int, dump: Path) -> None:
    """Write beats into a pipe from now on, and report where this process is when it gets the signal."""
    faulthandler.register(signal.SIGUSR1, file=open(dump, "w"), all_threads=True)  # noqa: SIM115 - stays open

    def beat() -> None:
        with suppress(OSError):
            while True:
                os.write(writing, BEAT)
                time.sleep(BEAT_SECONDS)

    threading.Thread(target=beat, name="benchmax-beat", daemon=True).start()


def _error(kind: str, message: str) -> Exception:
    """The child's error: one of benchmax's own classes, or a RuntimeError with its text."""
    ours = getattr(errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, BenchmaxError):
        return ours(message)
    return RuntimeError(f"{kind}: {message}")


def _work(work: Callable[[], dict[str, Any]], writing: int, dump: Path, result: Path) -> None:
    """The child: never returns."""
    try:
        send_beats(writing, dump)
        try:
            message = json.dumps({"value": work()})
        except BaseException as error:
            message = json.dumps({"raised": {"kind": type(error).__name__, "message": str(error)}})
        result.write_text(message, "utf-8")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(writing, DONE)
    finally:
        os._exit(0)


def wait_for_end(reading: int, ask: Callable[[], object], dump: Path, seconds: float) -> None:
    """Wait until a process has finished or ended; raises InterpreterHeld when its beats stop. `ask` sends SIGUSR1."""
    while True:
        ready, _, _ = select.select([reading], [], [], seconds)
        if not ready:
            raise InterpreterHeld(_where_is(ask, dump), seconds)
        beats = os.read(reading, 4096)
        if not beats or DONE in beats:
            return


def _where_is(ask: Callable[[], object], dump: Path) -> str:
    """Where a process that stopped beating is: file, line and function of the environment's own code.

    `ask` sends it SIGUSR1.
    """
    with suppress(ProcessLookupError):
        ask()
    for _ in range(40):
        time.sleep(0.05)
        with suppress(OSError):
            if found := blocking_frame(read_plain(dump.parent, dump.name, DUMP_BYTES).decode("utf-8", "replace")):
                return found
    return "something"


def blocking_frame(dump: str) -> str:
    """The first frame of the environment's own code in a dump of all threads, the newest first."""
    frames = [frame for thread in dump.split("\n\n") for frame in _FRAME.findall(thread)]
    own = [frame for frame in frames if not frame[0].startswith(_NOT_THE_ENVIRONMENT) and frame[0] != sys.argv[0]]
    for path, line, function in own or [frame for frame in frames if frame[0].startswith(_BUILT_IN)]:
        return f"{path}:{line} in {function}"
    return ""
