"""What every child is: a process that waits for its runner, works in its folder, and writes down how it ended."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TextIO

from benchmax.envs.remote.reaper import adopt_orphans
from benchmax.files.logs import SecretFreeFormatter
from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children import sandboxing
from benchmax.platform.runner.children.child_files import (
    CHILD_FILE,
    EXIT_FILE,
    LAUNCH_FILE,
    read_child_file,
    write_child_file,
)
from benchmax.platform.runner.jobs.outcome import COMPLETE, CRASHED, INTERRUPTED, MISTAKE, NO_MEMORY, NO_SPACE, Exit
from benchmax.platform.runner.processes import parent_watch

BEAT_SECONDS = 5.0

Work = Callable[["ChildProcess"], Coroutine[Any, Any, str]]
"""What a child does; returns the reason for its end."""


def run_child(work: Work) -> int:
    """Wait for the runner's message, work, and write down how it ended."""
    parser = argparse.ArgumentParser(prog="benchmax.platform.runner.children")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--parent-pipe", type=int, default=-1)
    parser.add_argument("--policy", choices=["adopt", "stop"], default="stop")
    given = parser.parse_args()
    run_dir: Path = given.run_dir
    message: dict[str, Any] = {}
    if given.parent_pipe >= 0:
        message = parent_watch.wait_for_message(given.parent_pipe)
        parent_watch.watch_parent(given.parent_pipe, run_dir, given.policy)
    os.umask(0o077)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(SecretFreeFormatter())  # its own leaves out the time
    adopt_orphans()  # so that `end_others` knows what an installer, say, left behind
    with ChildProcess(run_dir, message) as child:
        ended = attempt(work, child)
    parent_watch.refuse_adoption(run_dir)
    _write_exit(run_dir, ended)
    parent_watch.end_others(run_dir)  # the runner would, but it may be gone
    return ended.code or 0


def main(work: Work) -> NoReturn:
    """Run the work as a program. It exits at once: shutting down an interpreter with torch would hold the run's slot
    for seconds more."""
    code = run_child(work)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def attempt(work: Work, child: ChildProcess) -> Exit:
    """Do the work; returns how it ended."""
    sandboxing.receive(child.message)
    try:
        reason = asyncio.run(work(child))
    except BaseException as error:
        hide = Redactor(child.secrets)
        write_log(f"{log_time()} ERROR The process of the run ends:\n{hide(traceback.format_exc())}")
        ended = failure(error, child.folder)
        return Exit(ended.code, hide(ended.reason))
    if reason == "interrupted":
        return Exit(INTERRUPTED, "The run was interrupted; its state is saved.")
    return Exit(COMPLETE, reason)


class ChildProcess:
    """This process: its folder, the runner's message, and its phase, which it writes to child.json with a heartbeat."""

    def __init__(self, folder: Path, message: Mapping[str, Any]) -> None:
        self.folder = folder
        self.message = message
        self.variables: Mapping[str, str] = message.get("variables", {})
        """The variables of the environment."""
        self.secrets = [*self.variables.values(), message.get("endpoint_key", "")]
        """Values that no log or message may contain."""
        self._text = "starting"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="benchmax-phase", daemon=True)

    @cached_property
    def launch(self) -> dict[str, Any]:
        """What was asked for."""
        return read_child_file(self.folder / LAUNCH_FILE)

    @property
    def files(self) -> dict[str, Path]:
        """The bundle and the datasets, by their names at launch; they may lie in another folder."""
        return {name: self.folder / file for name, file in self.launch["files"].items()}

    def say(self, text: str) -> None:
        """Report the phase."""
        self._text = text
        self._write()

    def training(self) -> None:
        """The trainer's own heartbeat takes over: one that stops must be seen."""
        self._over.set()

    def __enter__(self) -> ChildProcess:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._write()

    def _write(self) -> None:
        about = {"pid": os.getpid(), "phase": self._text, "time": time.time()}
        try:
            write_child_file(self.folder / CHILD_FILE, about)
        except OSError as error:
            write_log(f"no heartbeat: {error}")


def failure(error: BaseException, run_dir: Path) -> Exit:
    """How an error ends a child. A user's mistake and a full disk or memory end it again; the rest is retried."""
    from benchmax.bundle import BundlingError
    from benchmax.errors import RewardError, UsageError
    from benchmax.extras import explain
    from benchmax.memory import disk_is_full, out_of_memory

    if isinstance(error, UsageError | BundlingError | RewardError):
        return Exit(MISTAKE, str(error))
    if isinstance(error, ImportError) and (advice := explain(error)) is not None:
        return Exit(MISTAKE, f"{advice} (on the platform's machine), then resume the run.")
    if disk_is_full(error):
        where = getattr(error, "filename", None) or run_dir
        return Exit(NO_SPACE, f"No space left on {where}. Free some, then resume the run.")
    if out_of_memory(error):
        return Exit(NO_MEMORY, f"Out of memory: {error}. Use a smaller model, group_size or max_rollout_len.")
    return Exit(CRASHED, f"{type(error).__name__}: {error}")


def _write_exit(run_dir: Path, ended: Exit) -> None:
    about = {"pid": os.getpid(), "code": ended.code, "reason": ended.reason}
    try:
        write_child_file(run_dir / EXIT_FILE, about)
    except OSError as error:
        write_log(f"could not write {EXIT_FILE}: {error}")


def write_log(text: str, stream: TextIO | None = None) -> None:
    """Print to child.log. Where its disk is full nothing is printed: that must not change how the child ends."""
    with suppress(OSError):
        print(text, file=stream or sys.stderr, flush=True)


def log_time() -> str:
    """The time as Python's logging writes it."""
    return datetime.now().isoformat(" ", "milliseconds").replace(".", ",")
