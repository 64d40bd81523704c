"""A judge of mathematical answers, in processes of its own that hostile answers cannot hold up.

    judge = Judge()
    judge.same(r"\\sqrt{50}", r"5\\sqrt{2}")   # True

A process starts with the first answer that needs one, and loads math-verify once. An answer that takes longer than
`limits.MATH_JUDGE_SECONDS` to compare is not the same.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmax import extras, limits
from benchmax.envs.math.answers import decide
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.errors import RewardError, UsageError

SCRIPT = Path(__file__).with_name("judge_process.py")
START_SECONDS = 60.0
MOST_PROCESSES = 4
_TRIES = 2


class Judge:
    """Compares answers; may be asked from any thread, several at once."""

    def __init__(self, seconds: float = limits.MATH_JUDGE_SECONDS) -> None:
        self._seconds = seconds
        self._free: queue.LifoQueue[_JudgeProcess | None] = queue.LifoQueue()
        for _ in range(min(MOST_PROCESSES, os.cpu_count() or 1)):
            self._free.put(None)

    def same(self, answer: str, truth: str) -> bool:
        """Whether an answer is right."""
        decided = decide(answer, truth)
        if decided is not None:
            return decided
        process = self._free.get()
        try:
            for _ in range(_TRIES):
                process = process or _JudgeProcess(self._seconds)
                if (verdict := process.ask(answer, truth)) is not None:
                    return verdict
                process.end()
                process = None
        finally:
            self._free.put(process)
        raise RewardError(f"The judge's process ended {_TRIES} times. See whether memory is short, then try again.")

    def close(self) -> None:
        """End the processes that are not busy; the others end with this one."""
        for process in [self._free.get() for _ in range(self._free.qsize())]:
            if process is not None:
                process.end()
            self._free.put(None)


class _JudgeProcess:
    """One process, and the lines to and from it."""

    def __init__(self, seconds: float) -> None:
        self._patience = 10 * seconds + START_SECONDS
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT), str(seconds)], env=scrubbed_environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        said = self._heard() or {}
        if "ready" not in said:
            self.end()
            if missing := said.get("missing"):
                raise UsageError(
                    f"Judging this answer needs a package that is not installed ({missing}). "
                    f"Run: {extras.install('envs')}"
                )
            raise RewardError(f"The judge's process did not start within {self._patience:g} s. Try again.")

    def ask(self, answer: str, truth: str) -> bool | None:
        """Whether they are the same; None when the process is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"answer": answer, "truth": truth}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        said = self._heard()
        return None if said is None else bool(said["same"])

    def _heard(self) -> dict[str, Any] | None:
        """The next line; None when the process ended or says nothing for too long."""
        assert self._process.stdout is not None
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(self._process.stdout, select.POLLIN)
        line = self._process.stdout.readline() if waiting.poll(1_000 * self._patience) else b""
        return dict(json.loads(line)) if line else None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what was left to write has no reader
                pass
