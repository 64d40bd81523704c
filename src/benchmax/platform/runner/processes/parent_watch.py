"""The child's side of the tie to its runner: a pipe that the runner holds open.

A child begins only when the runner has recorded its pid and sends it a message down the pipe; a runner that dies before
leaves a child that never began. After that the pipe is silent; its end means that the runner died:

    policy "stop"    the child ends, within two seconds
    policy "adopt"   the child goes on for ten seconds; a new runner takes it over by writing to a fifo in the run
                     directory, and holds that fifo open as the old one held the pipe

The smallest of children import this module: keep it light.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

from benchmax.platform.runner.processes.process_ids import all_processes, descendants, send_signal
from benchmax.platform.runner.processes.process_tags import tagged

Policy = Literal["stop", "adopt"]

ADOPT_SECONDS = 10.0
"""How long a child waits for a new runner."""
END_SECONDS = 1.5
"""From SIGTERM to SIGKILL, when the runner is gone."""


def fifo_path(run_dir: Path, pid: int) -> Path:
    return run_dir / f".adopt-{pid}"


def wait_for_message(pipe: int) -> dict[str, Any]:
    """The runner's message, sent when it has recorded this process; exits when the runner is gone instead."""
    text = b""
    while not text.endswith(b"\n"):
        piece = os.read(pipe, 65_536)
        if not piece:
            sys.exit(0)
        text += piece
    message: dict[str, Any] = json.loads(text)
    return message


def watch_parent(pipe: int, run_dir: Path, policy: Policy) -> None:
    """Watch the runner from a thread, for as long as this process lives."""
    if policy == "adopt":
        fifo = fifo_path(run_dir, os.getpid())
        fifo.unlink(missing_ok=True)  # of an earlier process with this pid, before the machine was restarted
        os.mkfifo(fifo, 0o600)
    threading.Thread(target=_watch, args=(pipe, run_dir, policy), name="benchmax-parent-watch", daemon=True).start()


def refuse_adoption(run_dir: Path) -> None:
    """Remove the fifo: nobody may adopt a process that is about to end."""
    fifo_path(run_dir, os.getpid()).unlink(missing_ok=True)


def _watch(pipe: int, run_dir: Path, policy: Policy) -> None:
    while True:
        while os.read(pipe, 4096):
            pass
        os.close(pipe)
        adopted = _await_adoption(run_dir) if policy == "adopt" else None
        if adopted is None:
            _end(run_dir)
            return
        pipe = adopted


def _await_adoption(run_dir: Path) -> int | None:
    try:
        fifo = os.open(fifo_path(run_dir, os.getpid()), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not select.select([fifo], [], [], ADOPT_SECONDS)[0]:
        os.close(fifo)
        return None
    os.set_blocking(fifo, True)
    return fifo


def _end(run_dir: Path) -> None:
    """Ask this process to end and save what it can, then end the whole run."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    end_others(run_dir)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end_others(run_dir: Path) -> None:
    """End whatever belongs to the run but this process."""
    own, processes = os.getpid(), all_processes()
    others = {process.pid for process in descendants([own], processes) | tagged(run_dir, processes)} - {own}
    send_signal(signal.SIGKILL, *others)
