"""Starting helper processes, and asking them.

    processes = LineProcesses(Path("judge_process.py"), ["1.0"], patience=60.0)
    processes.ask({"answer": "7", "truth": "7"})

The script prints `{"ready": true}` once it has loaded what it needs, or `{"missing": NAME}` for a package that is not
installed; then it answers. A process starts when it is needed, and one that was lost is replaced.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmax import extras
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.errors import RewardError, UsageError

START_SECONDS = 60.0
MOST_PROCESSES = 4
_TRIES = 2


class LineProcesses:
    """Asks a few processes of one script; from any thread, several at once."""

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str] = (),
        *,
        patience: float,
        what: str,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`patience` are the seconds one answer may take, `what` the subject of messages."""
        self._command = [sys.executable, "-P", str(script), *arguments]
        self._patience, self._what, self._variables = patience + START_SECONDS, what, dict(variables or {})
        self._by_asker: dict[int, queue.LifoQueue[_LineProcess | None]] = {}
        """By the process that asks: a fork must not write into the pipes of its parent."""

    @property
    def _free(self) -> queue.LifoQueue[_LineProcess | None]:
        """Processes that are not busy; None stands for one that may be started."""
        if os.getpid() not in self._by_asker:
            free: queue.LifoQueue[_LineProcess | None] = queue.LifoQueue()
            for _ in range(min(MOST_PROCESSES, os.cpu_count() or 1)):
                free.put(None)
            self._by_asker.setdefault(os.getpid(), free)
        return self._by_asker[os.getpid()]

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a message; RewardError when no process lives long enough to give one."""
        process = self._free.get()
        try:
            for _ in range(_TRIES):
                process = process or self._start()
                if (answer := process.ask(message)) is not None:
                    return answer
                process.end()
                process = None
        except BaseException:
            if process is not None:  # its answer, still to come, would be read as that to the next message
                process.end()
                process = None
            raise
        finally:
            self._free.put(process)
        raise RewardError(f"{self._what} ended {_TRIES} times. See whether memory is short, then try again.")

    def _start(self) -> _LineProcess:
        process = _LineProcess(self._command, self._variables, self._patience)
        first = process.read() or {}
        if "ready" in first:
            return process
        process.end()
        if missing := first.get("missing"):
            raise UsageError(
                f"{self._what} needs a package that is not installed ({missing}). Run: {extras.install('envs')}"
            )
        raise RewardError(
            f"{self._what} did not start. Try again, or install its packages anew: {extras.install('envs')}"
        )

    def close(self) -> None:
        """End the processes that are not busy; the others end with this one."""
        for process in [self._free.get() for _ in range(self._free.qsize())]:
            if process is not None:
                process.end()
            self._free.put(None)


class _LineProcess:
    """One process, and the lines to and from it."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], patience: float) -> None:
        self._patience = patience
        self._process = subprocess.Popen(
            command, env={**scrubbed_environment(), **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Its answer; None when the process is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self.read()

    def read(self) -> dict[str, Any] | None:
        """The next line; None when the process ended or says nothing for too long."""
        assert self._process.stdout is not None
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(self._process.stdout, select.POLLIN)
        line = self._process.stdout.readline() if waiting.poll(1_000 * self._patience) else b""
        return dict(json.loads(line)) if line.endswith(b"\n") else None  # killed while it wrote, it leaves half a line

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what was left to write has no reader
                pipe.close()
