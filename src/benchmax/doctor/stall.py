"""An environment that holds the interpreter: a regular expression that never ends cannot be interrupted by Python.

It is watched from another process. The watched one beats once a second; when it stops, it is asked where it is (the
answer comes from a signal handler that needs no interpreter) and ended.

    parent                          child
    apart(work) ── forks ──▶  beats ─── work ─── result, as JSON, in a file
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
"""Without a beat, after which the interpreter is held. Code that only takes long lets others run in between."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_PACKAGE, _STANDARD = (os.path.join(os.path.dirname(str(module.__file__)), "") for module in (errors, os))
_OURS = (_PACKAGE, _STANDARD, "<frozen")
_BUILT_IN = os.path.join(_PACKAGE, "envs", "")


class Stalled(Exception):
    """The work held the interpreter; says where."""

    def __init__(self, where: str, seconds: float) -> None:
        self.where, self.seconds = where, seconds
        super().__init__(f"{where} held the interpreter for {seconds:.0f} s and was ended")


def can_watch() -> bool:
    """Whether this system lets one process watch a copy of itself."""
    return hasattr(os, "fork") and hasattr(faulthandler, "register")


def apart(work: Callable[[], dict[str, Any]], *, seconds: float | None = None) -> dict[str, Any]:
    """What `work` gives, plain JSON, done in a copy of this process. Raises what it raises, and Stalled when it holds
    its own interpreter for so long."""
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
            _wait(reading, pid, dump, seconds)
            told: dict[str, Any] = json.loads(result.read_text("utf-8"))
        except FileNotFoundError:
            raise RuntimeError("The environment ended the process that examined it (os._exit, a crash).") from None
        finally:
            os.close(reading)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if "raised" in told:
        raise _error(**told["raised"])
    gave: dict[str, Any] = told["gave"]
    return gave


def watch_me(writing: int, dump: Path) -> None:
    """Beat into a pipe from now on, and tell where this process is when it is asked by a signal."""
    faulthandler.register(signal.SIGUSR1, file=open(dump, "w"), all_threads=True)  # noqa: SIM115 - open for good

    def beat() -> None:
        with suppress(OSError):
            while True:
                os.write(writing, BEAT)
                time.sleep(BEAT_SECONDS)

    threading.Thread(target=beat, name="benchmax-beat", daemon=True).start()


def _error(kind: str, message: str) -> Exception:
    """An error of the child's: ours as it was, another's in words."""
    ours = getattr(errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, BenchmaxError):
        return ours(message)
    return RuntimeError(f"{kind}: {message}")


def _work(work: Callable[[], dict[str, Any]], writing: int, dump: Path, result: Path) -> None:
    """The child: never returns."""
    try:
        watch_me(writing, dump)
        try:
            message = json.dumps({"gave": work()})
        except BaseException as error:
            message = json.dumps({"raised": {"kind": type(error).__name__, "message": str(error)}})
        result.write_text(message, "utf-8")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(writing, DONE)
    finally:
        os._exit(0)


def _wait(reading: int, pid: int, dump: Path, seconds: float) -> None:
    """Until the child is done or gone; raises Stalled when it stops beating."""
    while True:
        ready, _, _ = select.select([reading], [], [], seconds)
        if not ready:
            raise Stalled(where_is(lambda: os.kill(pid, signal.SIGUSR1), dump), seconds)
        beats = os.read(reading, 4096)
        if not beats or DONE in beats:
            return


def where_is(ask: Callable[[], None], dump: Path, patience: float = 2.0) -> str:
    """Where a process that no longer beats is, in words: file, line and function of the environment's own code.

    `ask` sends it SIGUSR1.
    """
    with suppress(ProcessLookupError):
        ask()
    until = time.monotonic() + patience
    while time.monotonic() < until:
        time.sleep(0.05)
        with suppress(OSError):
            if found := culprit(read_plain(dump.parent, dump.name, DUMP_BYTES).decode("utf-8", "replace")):
                return found
    return "something"


def culprit(dump: str) -> str:
    """The first frame of the environment's own code in a dump of all threads, the newest first."""
    frames = [frame for thread in dump.split("\n\n") for frame in _FRAME.findall(thread)]
    theirs = [frame for frame in frames if not frame[0].startswith(_OURS) and frame[0] != sys.argv[0]]
    for path, line, function in theirs or [frame for frame in frames if frame[0].startswith(_BUILT_IN)]:
        return f"{path}:{line} in {function}"
    return ""
