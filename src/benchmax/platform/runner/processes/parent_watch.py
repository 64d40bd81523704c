"""The child's end of the tie to its runner.

A child begins only when the runner has noted its pid and sends word down a pipe; a runner that dies before leaves a
child that never began. Later the pipe says nothing; its end means that the runner died:

    policy "stop"    the child ends, within two seconds
    policy "adopt"   the child goes on for ten seconds; a new runner takes it over by writing to a fifo in the run
                     directory, and holds that fifo open as the old one held the pipe

This module is imported by the smallest of children: keep it light.
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

from benchmax.platform.runner.processes import process_ids as proc
from benchmax.platform.runner.processes import process_tags as marks

Policy = Literal["stop", "adopt"]

ADOPT_SECONDS = 10.0
"""How long a child waits for a new runner."""
END_SECONDS = 1.5
"""From the polite signal to the other one, when the runner is gone."""


def fifo_path(run_dir: Path, pid: int) -> Path:
    return run_dir / f".adopt-{pid}"


def wait_for_word(fd: int) -> dict[str, Any]:
    """What the runner says when it has noted this process; ends the process when the runner is gone instead."""
    text = b""
    while not text.endswith(b"\n"):
        piece = os.read(fd, 65_536)
        if not piece:
            sys.exit(0)
        text += piece
    word: dict[str, Any] = json.loads(text)
    return word


def hold(fd: int, run_dir: Path, policy: Policy) -> None:
    """Watch the runner from a thread, for as long as this process lives."""
    if policy == "adopt":
        fifo = fifo_path(run_dir, os.getpid())
        fifo.unlink(missing_ok=True)  # of an earlier process with this number, before the machine started anew
        os.mkfifo(fifo, 0o600)
    threading.Thread(target=_watch, args=(fd, run_dir, policy), name="benchmax-lifeline", daemon=True).start()


def let_go(run_dir: Path) -> None:
    """Remove the fifo: nobody may adopt a process that is about to end."""
    fifo_path(run_dir, os.getpid()).unlink(missing_ok=True)


def _watch(fd: int, run_dir: Path, policy: Policy) -> None:
    while True:
        while os.read(fd, 4096):
            pass
        os.close(fd)
        adopted = _await_adoption(run_dir) if policy == "adopt" else None
        if adopted is None:
            _end(run_dir)
            return
        fd = adopted


def _await_adoption(run_dir: Path) -> int | None:
    try:
        fd = os.open(fifo_path(run_dir, os.getpid()), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not select.select([fd], [], [], ADOPT_SECONDS)[0]:
        os.close(fd)
        return None
    os.set_blocking(fd, True)
    return fd


def _end(run_dir: Path) -> None:
    """Ask this process to end and save what it can, then end the whole run."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    end_others(run_dir)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end_others(run_dir: Path) -> None:
    """End whatever belongs to the run but this process."""
    own, processes = os.getpid(), proc.everything()
    for process in proc.descendants([own], processes) | marks.marked(run_dir, processes):
        if process.pid != own:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
